-- Positional smoothing: q·centroid convolved along the pages with a bell of five taps (1 4 6 4 1) / 16.
local flow = sluice.flow { name = "opus_positional_smoothing", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local score = q:mean("head"):dot(c.centroid)
  local smooth = score:conv1d({ 1 / 16, 4 / 16, 6 / 16, 4 / 16, 1 / 16 })
  return sluice.topk(smooth, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
