-- Block top-k with blocks of 64 tokens and the mean query.
local flow = sluice.flow { name = "centroid_page64", page = 64 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  return sluice.topk(q:mean("head"):dot(c.centroid), { ratio = 1 / 8, first = 1, last = 1 })
end

return flow
