-- Mistake: compares the query with the values.
local flow = sluice.flow { name = "held_values_as_keys", page = 16 }

function flow.cache(c)
  c.mu = c.v:mean("token")
end

function flow.index(q, c)
  return sluice.topk(q:dot(c.mu):max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
