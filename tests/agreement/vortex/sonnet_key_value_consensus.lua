-- Key-value consensus: min(q·mean key, q·mean value), so that the view that agrees less decides.
local flow = sluice.flow { name = "sonnet_key_value_consensus", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.value = c.v:mean("token")
end

function flow.index(q, c)
  local route = q:mean("head")
  local by_key, by_value = route:dot(c.centroid), route:dot(c.value)
  return sluice.topk(by_key:minimum(by_value), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
