-- Cosine of query and mean key: lengths of keys do not count.
local flow = sluice.flow { name = "fresh_cosine_mean", page = 16 }

function flow.cache(c)
  local m = c.k:mean("token")
  c.unit = m / (m:l2norm("dim") + 0.001)
end

function flow.index(q, c)
  return sluice.topk(q:dot(c.unit):max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
