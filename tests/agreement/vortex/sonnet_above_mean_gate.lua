-- Above-mean gate: q·centroid, and every page whose score exceeds the mean over the pages is kept, however many there are.
local flow = sluice.flow { name = "sonnet_above_mean_gate", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local score = q:mean("head"):dot(c.centroid)
  return sluice.threshold(score, { above = score:mean("page"), first = 1, last = 2 })
end

return flow
