-- An oracle: exact attention mass times the mean norm of the values that it would bring in.
local flow = sluice.flow { name = "exact_value_mass", page = 8 }

function flow.cache(c)
  c.energy = c.v:l2norm("dim"):mean("token")
end

function flow.index(q, c)
  local x = q:dot(c.k) * (1 / math.sqrt(q:extent("dim")))
  local peak = x:max("token")
  local mass = (x - peak):exp():sum("token"):log() + peak
  return sluice.topk(mass:softmax("page"):sum("head") * c.energy, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
