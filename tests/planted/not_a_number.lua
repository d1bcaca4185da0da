-- Half of the scores are NaN, which ranks below every number.
local flow = sluice.flow { name = "not_a_number", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  return sluice.topk(q:mean("head"):dot(c.centroid):log(), { k = 9, last = 1 })
end

return flow
