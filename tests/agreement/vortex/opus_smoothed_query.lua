-- Smoothed query: (0.7 q + 0.3 the last step's q)·centroid.
local flow = sluice.flow { name = "opus_smoothed_query", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local route = q:mean("head")
  local previous = sluice.load("query", { axes = { "dim" }, init = 0 })
  sluice.save("query", route)
  local score = (0.7 * route + 0.3 * previous):dot(c.centroid)
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
