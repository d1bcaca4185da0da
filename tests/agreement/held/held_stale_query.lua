-- Prefetching: pages are chosen with the query of the step before, so that they could be fetched ahead of time.
local flow = sluice.flow { name = "held_stale_query", page = 16 }

function flow.cache(c)
  c.mu = c.k:mean("token")
end

function flow.index(q, c)
  local before = sluice.load("before", { axes = { "head", "dim" }, init = 0 })
  sluice.save("before", q)
  return sluice.topk(before:dot(c.mu):max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
