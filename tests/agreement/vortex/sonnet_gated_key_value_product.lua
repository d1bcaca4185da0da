-- Gated key-value product: sigmoid(q·mean key / √dim) sigmoid(q·mean value / √dim), a soft AND.
local flow = sluice.flow { name = "sonnet_gated_key_value_product", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.value = c.v:mean("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local route = q:mean("head") * scale
  local by_key, by_value = route:dot(c.centroid):sigmoid(), route:dot(c.value):sigmoid()
  return sluice.topk(by_key * by_value, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
