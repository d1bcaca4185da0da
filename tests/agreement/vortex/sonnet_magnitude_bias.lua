-- Magnitude bias: q·centroid plus a tenth of the centroid's norm.
local flow = sluice.flow { name = "sonnet_magnitude_bias", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.norm = c.k:mean("token"):l2norm("dim")
end

function flow.index(q, c)
  local score = q:mean("head"):dot(c.centroid)
  return sluice.topk(score + 0.1 * c.norm, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
