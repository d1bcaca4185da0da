-- Coarse fine: q·(centroid of the page) plus the larger q·(centroid of a half).
local flow = sluice.flow { name = "opus_coarse_fine", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.halves = c.k:mean_interleave("token", 4)
end

function flow.index(q, c)
  local route = q:mean("head")
  local coarse, fine = route:dot(c.centroid), route:dot(c.halves):max("sub")
  return sluice.topk(coarse + fine, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
