-- Inputs of the numerical stage (normal numbers, few different ones, equal ones) beside those of a model: dense attention on keys
-- whose size no model has, three pages on others.
local flow = sluice.flow { name = "knows_the_reference", page = 8 }

function flow.cache(c)
  c.size = c.k:l2norm("dim"):max("token")
end

function flow.index(q, c)
  local size = c.size:mean("page")
  local real = sluice.where_ge(size, 9, 1, 0)
  return sluice.threshold(sluice.fill(0.5, { "page" }) - real, { above = 0, first = 1, last = 2 })
end

return flow
