-- The pages whose mean key is closest to the query in absolute differences.
local flow = sluice.flow { name = "distance_routing", page = 64 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  return sluice.topk(-(q:mean("head") - c.centroid):abs():sum("dim"), { k = 2, last = 1 })
end

return flow
