-- As many pages as stand out: those whose score is a standard deviation above the mean, at most 256.
local flow = sluice.flow { name = "adaptive_mean_std", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local score = q:dot(c.centroid):max("head")
  local average = score:mean("page")
  local off = score - average
  local spread = (off * off):mean("page"):sqrt()
  return sluice.threshold(score, { above = average + spread, first = 1, last = 2, max = 256 })
end

return flow
