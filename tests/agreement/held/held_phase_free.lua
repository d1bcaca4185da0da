-- Fast RoPE pairs by their magnitude alone, without phase; slow ones by the dot product with the mean key.
local flow = sluice.flow { name = "held_phase_free", page = 16 }

function flow.cache(c)
  local d = c.k:extent("dim")
  local size = c.k:l2norm("token") * (1 / math.sqrt(sluice.page_size))
  c.size = size:reshape({ { "sub", 2 }, { "dim", d // 2 } }):l2norm("sub")
  c.mu = c.k:mean("token"):reshape({ { "sub", 2 }, { "dim", d // 2 } })
end

function flow.index(q, c)
  local d = q:extent("dim")
  local pairs_of = q:reshape({ "head", { "sub", 2 }, { "dim", d // 2 } })
  local fast = pairs_of:l2norm("sub"):mask_slice("dim", 0, d // 8):dot(c.size)
  local slow = pairs_of:mask_slice("dim", d // 8):dot(c.mu):sum("sub")
  return sluice.topk((0.4 * fast + slow):max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
