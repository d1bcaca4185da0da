-- Strong interaction in either sense: the absolute score of the mean key, added over the heads.
local flow = sluice.flow { name = "held_absolute", page = 16 }

function flow.cache(c)
  c.mu = c.k:mean("token")
end

function flow.index(q, c)
  return sluice.topk(q:dot(c.mu):abs():sum("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
