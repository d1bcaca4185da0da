-- ShadowKV-like: a mean key as landmark, and a bonus for pages that have a key unlike their landmark.
local flow = sluice.flow { name = "landmark_outlier", page = 8 }

function flow.cache(c)
  local landmark = c.k:mean("token")
  local cosine = c.k:dot(landmark) / (c.k:l2norm("dim") * landmark:l2norm("dim") + 1e-6)
  c.landmark = landmark
  c.oddness = 1 - cosine:min("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local score = (q:dot(c.landmark) * scale):max("head") + c.oddness
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
