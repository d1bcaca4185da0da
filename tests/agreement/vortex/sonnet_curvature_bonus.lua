-- Curvature bonus: q·centroid plus half of the magnitude of its second difference along the pages.
local flow = sluice.flow { name = "sonnet_curvature_bonus", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local score = q:mean("head"):dot(c.centroid)
  local curvature = score:conv1d({ 1, -2, 1 }):abs()
  return sluice.topk(score + 0.5 * curvature, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
