-- Half of the budget by mean key score and half as a window of recent pages.
local flow = sluice.flow { name = "score_and_window", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local scored = sluice.topk(q:dot(c.centroid):max("head"), { ratio = 1 / 16, first = 1, last = 2 })
  return sluice.union(scored, sluice.topk(sluice.position(), { ratio = 1 / 16 }))
end

return flow
