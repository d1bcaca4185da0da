-- The mean key of a page against every query head; the best head counts.
local flow = sluice.flow { name = "centroid_best_head", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  return sluice.topk(q:dot(c.centroid):max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
