-- Plain mean keys of long pages, but a quarter of them.
local flow = sluice.flow { name = "held_quarter_mean", page = 32 }

function flow.cache(c)
  c.mu = c.k:mean("token")
end

function flow.index(q, c)
  return sluice.topk(q:mean("head"):dot(c.mu), { ratio = 1 / 4, first = 1, last = 1 })
end

return flow
