-- Elevation over history: q·centroid less the smallest score that the page ever had before; a page without a past counts with its score.
local flow = sluice.flow { name = "opus_elevation_over_history", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.floor = sluice.cfill(math.huge)              -- no step yet
end

function flow.index(q, c)
  local score = q:mean("head"):dot(c.centroid)
  local elevation = sluice.where_eq(c.floor, math.huge, score, score - c.floor)
  c.floor:save(score:minimum(c.floor))
  return sluice.topk(elevation, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
