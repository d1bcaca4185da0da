-- Without a query: pages that have keys of small norm, which tend to be attended to (Devoto et al. 2024).
local flow = sluice.flow { name = "low_key_norm", page = 8 }

function flow.cache(c)
  c.norm = c.k:l2norm("dim"):min("token")
end

function flow.index(q, c)
  return sluice.topk(-c.norm, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
