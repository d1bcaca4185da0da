-- Without a query: pages whose keys vary most around their mean, as the most diverse text.
local flow = sluice.flow { name = "key_spread_only", page = 8 }

function flow.cache(c)
  local mean = c.k:mean("token")
  c.spread = ((c.k * c.k):mean("token") - mean * mean):relu():mean("dim"):sqrt()
end

function flow.index(q, c)
  return sluice.topk(c.spread, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
