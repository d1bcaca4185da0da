-- Control: block top-k upside down, the pages that the query likes least.
local flow = sluice.flow { name = "held_least_similar", page = 16 }

function flow.cache(c)
  c.mu = c.k:mean("token")
end

function flow.index(q, c)
  return sluice.topk(-q:dot(c.mu):max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
