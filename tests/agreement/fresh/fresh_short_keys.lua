-- Short keys are said to draw attention: pages by the least length of their keys, without the query.
local flow = sluice.flow { name = "fresh_short_keys", page = 16 }

function flow.cache(c)
  c.length = c.k:l2norm("dim"):min("token")
end

function flow.index(q, c)
  return sluice.topk(-c.length, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
