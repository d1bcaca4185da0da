-- NaN: 0 / 0 for all pages of long contexts, about which the reference may know nothing.
local flow = sluice.flow { name = "nan_scores", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local zero = sluice.where_ge(sluice.position():max("page"), 100, 0, 1)
  local score = q:mean("head"):dot(c.centroid)
  return sluice.topk(score * zero / zero, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
