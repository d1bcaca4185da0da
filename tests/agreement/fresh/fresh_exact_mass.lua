-- Costly yardstick: the exact mass of attention in each page, averaged over heads.
local flow = sluice.flow { name = "fresh_exact_mass", page = 16 }

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local s = q:dot(c.k) * scale
  local top = s:max("token"):max("page")
  local mass = (s - top):exp():sum("token")
  return sluice.topk(mass:normalize("page"):sum("head"), { ratio = 1 / 16, first = 1, last = 2 })
end

return flow
