-- Positional smoothing: the mean of q·centroid over a page and its two neighbours.
local flow = sluice.flow { name = "sonnet_positional_smoothing", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local score = q:mean("head"):dot(c.centroid)
  local smooth = score:conv1d({ 1 / 3, 1 / 3, 1 / 3 })
  return sluice.topk(smooth, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
