-- An oracle on a small budget: exact attention mass, the best head's share, a twelfth of the pages of 16.
local flow = sluice.flow { name = "exact_mass_twelfth", page = 16 }

function flow.index(q, c)
  local x = q:dot(c.k) * (1 / math.sqrt(q:extent("dim")))
  local peak = x:max("token")
  local mass = (x - peak):exp():sum("token"):log() + peak
  return sluice.topk(mass:softmax("page"):max("head"), { ratio = 1 / 12, first = 1, last = 2 })
end

return flow
