-- The box's centre plus twice its half width: optimism beyond what any key could reach.
local flow = sluice.flow { name = "box_radius_double", page = 8 }

local optimism = 2

function flow.cache(c)
  local hi, lo = c.k:max("token"), c.k:min("token")
  c.centre = (hi + lo) * 0.5
  c.radius = (hi - lo) * 0.5
end

function flow.index(q, c)
  local score = q:dot(c.centre) + optimism * q:abs():dot(c.radius)
  return sluice.topk(score:max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
