-- What a page adds to the output is its attention times the length of its values: ranks by both.
local flow = sluice.flow { name = "held_value_weight", page = 16 }

function flow.cache(c)
  c.mu = c.k:mean("token")
  c.energy = c.v:l2norm("dim"):mean("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local p = (q:dot(c.mu) * scale):softmax("page"):sum("head")
  return sluice.topk(p * c.energy, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
