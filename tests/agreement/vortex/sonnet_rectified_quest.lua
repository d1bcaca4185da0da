-- Rectified Quest: Σ relu(max(q hi, q lo)), Quest's bound from the channels that speak for the page alone.
local flow = sluice.flow { name = "sonnet_rectified_quest", page = 8 }

function flow.cache(c)
  c.hi = c.k:max("token")
  c.lo = c.k:min("token")
end

function flow.index(q, c)
  local route = q:mean("head")
  local score = (route * c.hi):maximum(route * c.lo):relu():sum("dim")
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
