-- Long keys attract attention whatever is asked: pages with the longest key. Never looks at the query.
local flow = sluice.flow { name = "held_key_norm", page = 16 }

function flow.cache(c)
  c.length = c.k:l2norm("dim"):max("token")
end

function flow.index(q, c)
  return sluice.topk(c.length, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
