-- Pages of 64 by their mean key: very cheap to score.
local flow = sluice.flow { name = "held_coarse64", page = 64 }

function flow.cache(c)
  c.mu = c.k:mean("token")
end

function flow.index(q, c)
  return sluice.topk(q:dot(c.mu):max("head"), { ratio = 1 / 8, first = 1, last = 1 })
end

return flow
