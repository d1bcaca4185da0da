-- Steadies the selection against noise in one step's query: the routing query is a running mean, kept as a state.
local flow = sluice.flow { name = "smoothed_query", page = 16 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local previous = sluice.load("query", { axes = { "head", "dim" }, init = 0 })
  local smooth = 0.7 * q + 0.3 * previous
  sluice.save("query", smooth)
  return sluice.topk(smooth:dot(c.centroid):max("head"), { k = 5, first = 1, last = 2 })
end

return flow
