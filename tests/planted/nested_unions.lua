-- More unions than it takes to join what they join.
local flow = sluice.flow { name = "nested_unions", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local score = q:dot(c.centroid):max("head")
  local best, worst, last = sluice.topk(score, { k = 5 }), sluice.topk(-score, { k = 5 }), sluice.window { last = 2 }
  return sluice.union(sluice.union(best, last), sluice.union(last, worst), sluice.union(best, worst))
end

return flow
