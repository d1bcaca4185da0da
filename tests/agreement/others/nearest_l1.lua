-- The pages whose mean key is nearest to the mean query in the sum of absolute differences.
local flow = sluice.flow { name = "nearest_l1", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  return sluice.topk(-(q:mean("head") - c.centroid):abs():sum("dim"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
