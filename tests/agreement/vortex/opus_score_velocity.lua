-- Score velocity: q·centroid less half of what it was a step ago, so that rising pages gain and pages that scored high before lose.
local flow = sluice.flow { name = "opus_score_velocity", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.previous = sluice.cfill(0)
end

function flow.index(q, c)
  local score = q:mean("head"):dot(c.centroid)
  c.previous:save(score)
  return sluice.topk(score - 0.5 * c.previous, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
