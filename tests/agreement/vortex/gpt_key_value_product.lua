-- Key-value product: q·(mean key) times q·(mean value).
local flow = sluice.flow { name = "gpt_key_value_product", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.value = c.v:mean("token")
end

function flow.index(q, c)
  local route = q:mean("head")
  local score = route:dot(c.centroid) * route:dot(c.value)
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
