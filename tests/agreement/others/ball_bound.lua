-- The largest score that a key in the page's bounding ball could have: q.centre + |q| radius, best head.
local flow = sluice.flow { name = "ball_bound", page = 8 }

function flow.cache(c)
  local centre = c.k:mean("token")
  c.centre = centre
  c.radius = (c.k - centre):l2norm("dim"):max("token")
end

function flow.index(q, c)
  local score = (q:dot(c.centre) + q:l2norm("dim") * c.radius):max("head")
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
