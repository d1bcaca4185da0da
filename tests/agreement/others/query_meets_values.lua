-- A misunderstanding: the queries are compared with the mean value of a page rather than with its keys.
local flow = sluice.flow { name = "query_meets_values", page = 8 }

function flow.cache(c)
  c.content = c.v:mean("token")
end

function flow.index(q, c)
  return sluice.topk(q:dot(c.content):max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
