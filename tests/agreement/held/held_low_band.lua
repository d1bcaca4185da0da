-- Only the slowest half of the RoPE pairs: position-independent meaning is thought to live there.
local flow = sluice.flow { name = "held_low_band", page = 16 }

function flow.cache(c)
  local d = c.k:extent("dim")
  c.mu = c.k:mean("token"):reshape({ { "sub", 2 }, { "dim", d // 2 } })
end

function flow.index(q, c)
  local d = q:extent("dim")
  local slow = q:reshape({ "head", { "sub", 2 }, { "dim", d // 2 } }):mask_slice("dim", d // 4)
  return sluice.topk(slow:dot(c.mu):sum("sub"):max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
