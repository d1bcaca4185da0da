-- Persistent value energy: q·centroid times a running mean (0.9) of the mean value norm of the page.
local flow = sluice.flow { name = "sonnet_persistent_value_energy", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.energy = c.v:l2norm("dim"):mean("token")
  c.importance = sluice.cfill(0)
end

function flow.index(q, c)
  local score = q:mean("head"):dot(c.centroid)
  local importance = 0.9 * c.importance + 0.1 * c.energy
  c.importance:save(importance)
  return sluice.topk(score * importance, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
