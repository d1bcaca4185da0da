-- Anti-redundancy: q·centroid less half of the running mean of the page's own past scores.
local flow = sluice.flow { name = "opus_anti_redundancy", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.past = sluice.cfill(0)
end

function flow.index(q, c)
  local score = q:mean("head"):dot(c.centroid)
  c.past:save(0.9 * c.past + 0.1 * score)
  return sluice.topk(score - 0.5 * c.past, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
