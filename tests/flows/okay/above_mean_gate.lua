-- Adaptive: keeps the pages whose score exceeds the step's mean by half its range, at most 24 of them.
local flow = sluice.flow { name = "above_mean_gate", page = 16 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local score = q:mean("head"):dot(c.centroid)
  local average, peak = score:mean("page"), score:max("page")
  return sluice.threshold(score, { above = average + 0.5 * (peak - average), first = 1, last = 2, max = 24 })
end

return flow
