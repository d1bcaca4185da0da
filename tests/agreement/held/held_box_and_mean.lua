-- Boxes find needles, means find topics: half of the budget each, joined.
local flow = sluice.flow { name = "held_box_and_mean", page = 16 }

function flow.cache(c)
  c.hi, c.lo = c.k:max("token"), c.k:min("token")
  c.mu = c.k:mean("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local bound = (q * c.hi):maximum(q * c.lo):sum("dim"):max("head")
  local topic = (q:dot(c.mu) * scale):softmax("page"):sum("head")
  return sluice.union(sluice.topk(bound, { ratio = 1 / 14, first = 1, last = 2 }), sluice.topk(topic, { ratio = 1 / 14 }))
end

return flow
