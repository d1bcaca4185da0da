-- Without a query: the pages whose values have the largest mean norm.
local flow = sluice.flow { name = "value_norm_only", page = 8 }

function flow.cache(c)
  c.energy = c.v:l2norm("dim"):mean("token")
end

function flow.index(q, c)
  return sluice.topk(c.energy, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
