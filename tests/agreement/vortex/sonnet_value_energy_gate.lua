-- Value-energy gate: (q·centroid) times the mean value norm of the page.
local flow = sluice.flow { name = "sonnet_value_energy_gate", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.energy = c.v:l2norm("dim"):mean("token")
end

function flow.index(q, c)
  local score = q:mean("head"):dot(c.centroid)
  return sluice.topk(score * c.energy, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
