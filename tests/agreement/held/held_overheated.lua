-- Attention over mean keys, multiplied by the root of dim where it should be divided, averaged and weighed by age.
local flow = sluice.flow { name = "held_overheated", page = 16 }

function flow.cache(c)
  c.mu = c.k:mean("token")
end

function flow.index(q, c)
  local scale = math.sqrt(q:extent("dim"))
  local p = (q:dot(c.mu) * scale):softmax("page"):mean("head")
  local age = 1 / (sluice.position() + 1)
  return sluice.topk(p + age, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
