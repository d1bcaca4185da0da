-- The ball is pessimistic: only a quarter of its radius counts, and heads vote by softmax.
local flow = sluice.flow { name = "fresh_ball_half_radius", page = 8 }

function flow.cache(c)
  local centre = c.k:mean("token")
  c.centre = centre
  c.radius = (c.k - centre):l2norm("dim"):mean("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local s = q:dot(c.centre) + 0.25 * q:l2norm("dim") * c.radius
  return sluice.topk((s * scale):softmax("page"):max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
