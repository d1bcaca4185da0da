-- A ball in place of a box: centre, and the distance of the key that lies farthest from it.
local flow = sluice.flow { name = "fresh_ball_bound", page = 16 }

function flow.cache(c)
  local centre = c.k:mean("token")
  c.centre = centre
  c.radius = (c.k - centre):l2norm("dim"):max("token")
end

function flow.index(q, c)
  local s = q:dot(c.centre) + q:l2norm("dim") * c.radius
  return sluice.topk(s:max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
