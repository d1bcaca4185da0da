-- Key-and-value agreement: the smaller of q·(mean key) and q·(mean value).
local flow = sluice.flow { name = "opus_key_and_value_agreement", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.value = c.v:mean("token")
end

function flow.index(q, c)
  local route = q:mean("head")
  return sluice.topk(route:dot(c.centroid):minimum(route:dot(c.value)), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
