-- Distance routing: -Σ |q - centroid|, the closest mean key first.
local flow = sluice.flow { name = "sonnet_distance_routing", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local distance = (q:mean("head") - c.centroid):abs():sum("dim")
  return sluice.topk(-distance, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
