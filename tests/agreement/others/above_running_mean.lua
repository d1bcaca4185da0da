-- The page's score less half of its own running average: what is newly relevant comes first.
local flow = sluice.flow { name = "above_running_mean", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.usual = sluice.cfill(0)
end

function flow.index(q, c)
  local score = q:dot(c.centroid):max("head")
  c.usual:save(0.95 * c.usual + 0.05 * score)
  return sluice.topk(score - 0.5 * c.usual, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
