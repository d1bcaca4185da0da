-- Scores pages with the query of the step before (to prefetch them).
local flow = sluice.flow { name = "fresh_stale_query", page = 16 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local old = sluice.load("query", { axes = { "head", "dim" }, init = 0 })
  sluice.save("query", q)
  return sluice.topk(old:dot(c.centroid):max("head"), { ratio = 1 / 8, first = 1, last = 8 })
end

return flow
