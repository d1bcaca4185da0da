-- Neighbours of a good page are likely good: importance smoothed along the pages.
local flow = sluice.flow { name = "held_blurred", page = 8 }

function flow.cache(c)
  c.mu = c.k:mean("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local p = (q:dot(c.mu) * scale):softmax("page"):sum("head")
  return sluice.topk(p:conv1d({ 0.1, 0.2, 0.4, 0.2, 0.1 }), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
