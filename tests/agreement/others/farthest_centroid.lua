-- Nearly adversarial: the pages whose mean key lies farthest from the mean query.
local flow = sluice.flow { name = "farthest_centroid", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  return sluice.topk((c.centroid - q:mean("head")):l2norm("dim"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
