-- Mean plus one and a half standard deviations of the score in the page, the channels taken as independent.
local flow = sluice.flow { name = "held_deviation_bound", page = 8, fields = { var = "f32" } }

function flow.cache(c)
  local mu = c.k:mean("token")
  local centred = c.k - mu
  c.mu = mu
  c.var = (centred * centred):mean("token")
end

function flow.index(q, c)
  local spread = ((q * q):dot(c.var) + 1e-6):sqrt()
  return sluice.topk((q:dot(c.mu) + 1.5 * spread):max("head"), { ratio = 1 / 8, first = 1, last = 3 })
end

return flow
