-- Expected attention mass of a page were its keys Gaussian: exp(q.mean + q^2.variance / 2), shared out by head.
local flow = sluice.flow { name = "gaussian_mass", page = 8 }

function flow.cache(c)
  local mean = c.k:mean("token")
  c.mean = mean
  c.variance = ((c.k * c.k):mean("token") - mean * mean):relu()
end

function flow.index(q, c)
  local scaled = q * (1 / math.sqrt(q:extent("dim")))
  local mass = scaled:dot(c.mean) + 0.5 * (scaled * scaled):dot(c.variance)
  return sluice.topk(mass:softmax("page"):sum("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
