-- Mean keys and a budget of a thirty-second, of which the window takes half.
local flow = sluice.flow { name = "fresh_mean_starved", page = 16 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local s = q:mean("head"):dot(c.centroid)
  return sluice.topk(s, { ratio = 1 / 32, first = 1, last = 3 })
end

return flow
