-- Mean keys of pages of 64.
local flow = sluice.flow { name = "fresh_mean_p64", page = 64 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  return sluice.topk(q:dot(c.centroid):max("head"), { ratio = 1 / 8, first = 1, last = 1 })
end

return flow
