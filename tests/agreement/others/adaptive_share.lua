-- Pages with more than their fair share of the estimated attention, twice the mean, however many there are.
local flow = sluice.flow { name = "adaptive_share", page = 16 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local share = (q:dot(c.centroid) * scale):softmax("page"):sum("head")
  return sluice.threshold(share, { above = 2 * share:mean("page"), first = 1, last = 2 })
end

return flow
