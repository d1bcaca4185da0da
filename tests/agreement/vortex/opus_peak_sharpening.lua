-- Peak sharpening: q·centroid convolved along the pages with (-0.5 1 -0.5), the height of a page over its two neighbours.
local flow = sluice.flow { name = "opus_peak_sharpening", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local score = q:mean("head"):dot(c.centroid)
  local peak = score:conv1d({ -0.5, 1, -0.5 })
  return sluice.topk(peak, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
