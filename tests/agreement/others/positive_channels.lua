-- Counts only the channels that speak for a page and forgets those against it; a quarter of the pages.
local flow = sluice.flow { name = "positive_channels", page = 16 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local score = (q * c.centroid):relu():sum("dim"):max("head")
  return sluice.topk(score, { ratio = 1 / 4, first = 1, last = 1 })
end

return flow
