-- Volatility boost: q·centroid plus the standard deviation that the page's score had over the steps, from running first and second moments.
local flow = sluice.flow { name = "opus_volatility_boost", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.average = sluice.cfill(-math.huge)          -- no step yet
  c.square = sluice.cfill(0)
end

function flow.index(q, c)
  local score = q:mean("head"):dot(c.centroid)
  local fresh, energy = -math.huge, score * score
  local average = sluice.where_eq(c.average, fresh, score, 0.9 * c.average + 0.1 * score)
  local square = sluice.where_eq(c.average, fresh, energy, 0.9 * c.square + 0.1 * energy)
  c.average:save(average)
  c.square:save(square)
  local deviation = (square - average * average):relu():sqrt()
  return sluice.topk(score + deviation, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
