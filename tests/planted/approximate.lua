-- Few scores lie far above the others, which are left to chance only as far as the flow tolerates.
local flow = sluice.flow { name = "approximate", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  return sluice.approx_topk((q:dot(c.centroid):max("head") * 2):exp(), { k = 16, first = 1, last = 2, tolerate = 0.05 })
end

return flow
