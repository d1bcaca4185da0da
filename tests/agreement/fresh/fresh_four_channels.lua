-- Four channels of the query, the rest unused.
local flow = sluice.flow { name = "fresh_four_channels", page = 16 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  return sluice.topk(q:mask_slice("dim", 0, 4):dot(c.centroid):max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
