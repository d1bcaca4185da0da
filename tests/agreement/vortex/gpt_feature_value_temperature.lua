-- Feature value-temperature: Σ q centroid |v| with the norm of each value channel over the page's tokens as the (inverse) temperature of that channel.
local flow = sluice.flow { name = "gpt_feature_value_temperature", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.weight = c.v:l2norm("token")
end

function flow.index(q, c)
  local score = (q:mean("head") * c.weight):dot(c.centroid)
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
