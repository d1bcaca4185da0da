-- Means of eight tokens; a page gets the mass of all of them (log-sum-exp, kept safe by the row's maximum).
local flow = sluice.flow { name = "fresh_submean_lse", page = 32 }

function flow.cache(c)
  c.part = c.k:mean_interleave("token", 8)
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local s = q:dot(c.part) * scale
  local top = s:max("sub"):max("page")
  local mass = (s - top):exp():sum("sub")
  return sluice.topk(mass:normalize("page"):mean("head"), { ratio = 1 / 6, first = 1, last = 2 })
end

return flow
