-- A bound that float32 cannot know: the difference of two large equal sums. What it lets through is dense or next to nothing.
local flow = sluice.flow { name = "unknown_bound", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local score = q:mean("head"):dot(c.centroid)
  local bound = (score:sum("page") * 1e12 + 1) - score:sum("page") * 1e12
  return sluice.threshold(score, { above = bound, first = 1, last = 2 })
end

return flow
