-- The page's log-sum-exp to second order: mean plus half the variance along the query (diagonal covariance).
local flow = sluice.flow { name = "held_second_order", page = 16, fields = { mu = "f32", var = "f32" } }

function flow.cache(c)
  local mu = c.k:mean("token")
  local centred = c.k - mu
  c.mu = mu
  c.var = (centred * centred):mean("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local scaled = q * scale
  local estimate = scaled:dot(c.mu) + 0.5 * (scaled * scaled):dot(c.var)
  return sluice.topk(estimate:softmax("page"):sum("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
