-- Deliberately bad: exact attention mass with its sign turned, so that the least attended pages come first.
local flow = sluice.flow { name = "anti_mass", page = 8 }

function flow.index(q, c)
  local x = q:dot(c.k) * (1 / math.sqrt(q:extent("dim")))
  local peak = x:max("token")
  local mass = (x - peak):exp():sum("token"):log() + peak
  return sluice.topk(-mass:mean("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
