-- More tokens are attended than one piece of work takes.
local flow = sluice.flow { name = "large_budget", page = 16 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  return sluice.topk(q:dot(c.centroid):max("head"), { k = 150, last = 2 })
end

return flow
