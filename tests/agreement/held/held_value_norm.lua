-- Pages whose values are longest, since those move the output most. Never looks at the query.
local flow = sluice.flow { name = "held_value_norm", page = 16, fields = { length = "f32" } }

function flow.cache(c)
  c.length = c.v:l2norm("dim"):mean("token")
end

function flow.index(q, c)
  return sluice.topk(c.length, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
