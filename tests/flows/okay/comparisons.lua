-- Every comparison, between tensors and numbers, over the envelope and a level.
local flow = sluice.flow { name = "comparisons", page = 8 }

function flow.cache(c)
  c.hi = c.k:max("token")
  c.lo = c.k:min("token")
  c.wide = sluice.where_gt(c.hi - c.lo, 1, 1, 0):mean("dim")
end

function flow.index(q, c)
  local route = q:mean("head")
  local bound = sluice.where_ge(route, 0, c.hi, c.lo)
  local score = route:dot(bound)
  score = sluice.where_lt(c.wide, 0.01, score - 1, score)
  score = sluice.where_le(sluice.position(), 0, score + 1, score)
  score = sluice.where_eq(score, 0, -1, score)
  score = sluice.where_ne(score, score, -math.huge, score)
  return sluice.topk(score, { k = 4, last = 2 })
end

return flow
