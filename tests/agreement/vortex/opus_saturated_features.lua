-- Saturated features: Σ sigmoid(q centroid / √dim) over the channels, each of which adds at most 1.
local flow = sluice.flow { name = "opus_saturated_features", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local score = (q:mean("head") * c.centroid * scale):sigmoid():sum("dim")
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
