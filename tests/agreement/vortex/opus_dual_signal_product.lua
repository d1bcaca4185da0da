-- Dual-signal product: q·centroid times |q|·(norm of each key channel over the page's tokens).
local flow = sluice.flow { name = "opus_dual_signal_product", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.strength = c.k:l2norm("token")
end

function flow.index(q, c)
  local route = q:mean("head")
  local direction, magnitude = route:dot(c.centroid), route:abs():dot(c.strength)
  return sluice.topk(direction * magnitude, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
