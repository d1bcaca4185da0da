-- Halfway between the bound of the box and the score of the mean key, best head.
local flow = sluice.flow { name = "box_centroid_mix", page = 8 }

function flow.cache(c)
  c.hi, c.lo = c.k:max("token"), c.k:min("token")
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local bound = (q * c.hi):maximum(q * c.lo):sum("dim")
  local score = (0.5 * bound + 0.5 * q:dot(c.centroid)):max("head")
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
