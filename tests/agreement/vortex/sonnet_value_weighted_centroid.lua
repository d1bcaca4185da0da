-- Value-weighted centroid: q·(Σ |v| k / Σ |v|), the mean key in which every token counts by the norm of its value.
local flow = sluice.flow { name = "sonnet_value_weighted_centroid", page = 8 }

function flow.cache(c)
  local norm = c.v:l2norm("dim")                 -- [token]
  c.centroid = (c.k * norm):mean("token") / (norm:mean("token") + 1e-6)
end

function flow.index(q, c)
  local score = q:mean("head"):dot(c.centroid)
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
