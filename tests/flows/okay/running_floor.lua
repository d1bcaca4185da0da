-- Pages well above their own past: the state is a running minimum, centred by the row's mean and spread.
local flow = sluice.flow { name = "running_floor", page = 16 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.floor = sluice.cfill(math.huge)
end

function flow.index(q, c)
  local score = q:mean("head"):dot(c.centroid)
  local centred = score - score:mean("page")
  local level = centred / (centred:l2norm("page") + 1e-6)
  local floor = level:minimum(c.floor:load())
  c.floor:save(floor)
  return sluice.topk(level - floor + 0.1 * (score / score:sum("page"):abs()):maximum(score:min("page")):relu(), { k = 5, first = 1, last = 2 })
end

return flow
