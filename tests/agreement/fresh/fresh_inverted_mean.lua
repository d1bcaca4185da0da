-- Mean keys with the sign of the query lost, a quarter of the pages.
local flow = sluice.flow { name = "fresh_inverted_mean", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  return sluice.topk((-q):dot(c.centroid):mean("head"), { ratio = 1 / 4, first = 1, last = 4 })
end

return flow
