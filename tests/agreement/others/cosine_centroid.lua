-- The cosine between query and mean key, so that long keys have no advantage; best head.
local flow = sluice.flow { name = "cosine_centroid", page = 8 }

function flow.cache(c)
  local centroid = c.k:mean("token")
  c.direction = centroid / (centroid:l2norm("dim") + 1e-6)
end

function flow.index(q, c)
  local unit = q / (q:l2norm("dim") + 1e-6)
  return sluice.topk(unit:dot(c.direction):max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
