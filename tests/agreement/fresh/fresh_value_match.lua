-- Compares the query with values in place of keys.
local flow = sluice.flow { name = "fresh_value_match", page = 16 }

function flow.cache(c)
  c.content = c.v:mean("token")
end

function flow.index(q, c)
  return sluice.topk(q:dot(c.content):max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
