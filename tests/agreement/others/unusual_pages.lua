-- Without a query: the pages whose mean key is farthest from the mean of all pages.
local flow = sluice.flow { name = "unusual_pages", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local score = (c.centroid - c.centroid:mean("page")):l2norm("dim")
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
