-- Keys of a page as a Gaussian with diagonal covariance: log E exp(qk) = q.mu + q^2.var / 2.
local flow = sluice.flow { name = "fresh_gauss_mass", page = 16 }

function flow.cache(c)
  local mu = c.k:mean("token")
  local d = c.k - mu
  c.mu = mu
  c.var = (d * d):mean("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local x = q * scale
  local s = x:dot(c.mu) + 0.5 * (x * x):dot(c.var)
  return sluice.topk(s:softmax("page"):mean("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
