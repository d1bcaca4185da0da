-- Sigmoid value gate: q·centroid times sigmoid(mean value norm / √dim), which saturates at 1.
local flow = sluice.flow { name = "gpt_sigmoid_value_gate", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.energy = c.v:l2norm("dim"):mean("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local score = q:mean("head"):dot(c.centroid)
  return sluice.topk(score * (c.energy * scale):sigmoid(), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
