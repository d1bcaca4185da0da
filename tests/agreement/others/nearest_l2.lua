-- The pages whose mean key is nearest to some head's query in Euclidean distance.
local flow = sluice.flow { name = "nearest_l2", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  return sluice.topk(-(q - c.centroid):l2norm("dim"):min("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
