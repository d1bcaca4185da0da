-- Positional smoothing: q·centroid convolved along the pages with a triangle (0.25 0.5 0.25).
local flow = sluice.flow { name = "gpt_positional_smoothing", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local score = q:mean("head"):dot(c.centroid)
  return sluice.topk(score:conv1d({ 0.25, 0.5, 0.25 }), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
