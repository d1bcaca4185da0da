-- Pages with long values, without the query.
local flow = sluice.flow { name = "fresh_value_length", page = 16 }

function flow.cache(c)
  c.weight = c.v:l2norm("dim"):max("token")
end

function flow.index(q, c)
  return sluice.topk(c.weight, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
