-- Centroid alignment, weighted by how much energy the page's values carry.
local flow = sluice.flow { name = "value_energy_gate", page = 32, layers = { [0] = "full", [-1] = "full", rest = "sparse" } }

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.energy = c.v:l2norm("dim"):mean("token")
end

function flow.index(q, c)
  return sluice.topk(q:mean("head"):dot(c.centroid) * c.energy, { k = 4, first = 1, last = 1, method = "radix" })
end

return flow
