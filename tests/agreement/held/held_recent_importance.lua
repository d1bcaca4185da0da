-- Neighbouring steps look at the same pages: this step's importance, with some of the last ones'.
local flow = sluice.flow { name = "held_recent_importance", page = 8 }

function flow.cache(c)
  c.hi = c.k:max("token")
  c.lo = c.k:min("token")
  c.trail = sluice.cfill(0)
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local bound = (q * c.hi):maximum(q * c.lo):sum("dim") * scale
  local now = bound:softmax("page"):max("head")
  local trail = 0.75 * now + 0.25 * c.trail
  c.trail:save(trail)
  return sluice.topk(trail, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
