-- Exploration: half of the pages by mean key, half drawn anew at every step.
local flow = sluice.flow { name = "held_half_chance", page = 16 }

function flow.cache(c)
  c.mu = c.k:mean("token")
end

function flow.index(q, c)
  local best = sluice.topk(q:dot(c.mu):max("head"), { ratio = 1 / 15, first = 1, last = 2 })
  return sluice.union(best, sluice.topk(sluice.random(), { ratio = 1 / 15 }))
end

return flow
