-- Pages whose mean key lies far from the mean of all, without the query.
local flow = sluice.flow { name = "fresh_novelty", page = 16 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local d = c.centroid - c.centroid:mean("page")
  return sluice.topk(d:l2norm("dim"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
