-- A window, the best pages approximately, and a few by chance.
local flow = sluice.flow { name = "union_of_views", page = 16 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local best = sluice.approx_topk(q:mean("head"):dot(c.centroid), { k = 6, first = 1, last = 1, tolerate = 0.05 })
  local chance = sluice.topk(sluice.random(), { k = 2 })
  return sluice.union(sluice.window { first = 1, last = 4 }, best, chance)
end

return flow
