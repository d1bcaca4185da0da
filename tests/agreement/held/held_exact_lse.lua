-- Reads the keys themselves: the exact mass of each page for every head. Dear, but saves all of the values.
local flow = sluice.flow { name = "held_exact_lse", page = 16 }

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local s = q:dot(c.k) * scale
  local top = s:max("token")
  local mass = (s - top):exp():sum("token"):log() + top
  return sluice.topk(mass:softmax("page"):sum("head"), { ratio = 1 / 8, first = 1, last = 1 })
end

return flow
