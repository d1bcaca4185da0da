-- Mean keys of small pages, a generous budget.
local flow = sluice.flow { name = "fresh_mean_p8_third", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  return sluice.topk(q:dot(c.centroid):max("head"), { ratio = 1 / 3, first = 2, last = 4 })
end

return flow
