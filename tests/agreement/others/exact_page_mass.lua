-- An oracle: the exact attention mass of each page, summed over the heads.
local flow = sluice.flow { name = "exact_page_mass", page = 8 }

function flow.index(q, c)
  local x = q:dot(c.k) * (1 / math.sqrt(q:extent("dim")))
  local peak = x:max("token")
  local mass = (x - peak):exp():sum("token"):log() + peak
  return sluice.topk(mass:softmax("page"):sum("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
