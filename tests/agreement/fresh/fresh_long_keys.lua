-- Pages by the greatest length of their keys, times the query's length, which changes nothing.
local flow = sluice.flow { name = "fresh_long_keys", page = 8 }

function flow.cache(c)
  c.length = c.k:l2norm("dim"):max("token")
end

function flow.index(q, c)
  return sluice.topk((q:l2norm("dim") * c.length):max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
