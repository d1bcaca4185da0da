-- Smoothly gated features: Σ silu(q centroid / √dim) over the channels, which lets agreement through and fades disagreement out.
local flow = sluice.flow { name = "sonnet_smoothly_gated_features", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local score = (q:mean("head") * c.centroid * scale):silu():sum("dim")
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
