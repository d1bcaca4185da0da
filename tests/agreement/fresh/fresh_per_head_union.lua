-- Every query head picks pages of its own; the KV head reads all of them.
local flow = sluice.flow { name = "fresh_per_head_union", page = 16 }

function flow.cache(c)
  c.hi = c.k:max("token")
  c.lo = c.k:min("token")
end

function flow.index(q, c)
  local s = (q * c.hi):maximum(q * c.lo):sum("dim")
  local heads = math.min(q:extent("head"), 7)
  local picks = {}
  for h = 0, heads - 1 do
    local own = s:mask_slice("head", h, h + 1):sum("head")
    picks[#picks + 1] = sluice.topk(own, { ratio = 1 / (5 * heads) })
  end
  picks[#picks + 1] = sluice.window { first = 1, last = 2 }
  return sluice.union(table.unpack(picks))
end

return flow
