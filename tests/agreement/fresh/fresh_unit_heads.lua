-- Heads with long queries should not outvote others: mean keys, scores divided by the query's length.
local flow = sluice.flow { name = "fresh_unit_heads", page = 16 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local s = q:dot(c.centroid) / q:l2norm("dim")
  return sluice.topk(s:max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
