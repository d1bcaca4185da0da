-- A ball around the mean key instead of a box: q.mu + |q| r is a sure bound but loose, so a quarter of the radius counts.
local flow = sluice.flow { name = "held_ball", page = 16 }

function flow.cache(c)
  local mu = c.k:mean("token")
  c.mu = mu
  c.radius = (c.k - mu):l2norm("dim"):max("token")
end

function flow.index(q, c)
  local bound = q:dot(c.mu) + 0.25 * q:l2norm("dim") * c.radius
  return sluice.topk(bound:max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
