-- Infinities: exp overflows for many pages, which then tie, and inf - inf is NaN for the rest.
local flow = sluice.flow { name = "infinite_scores", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local score = sluice.exp(q:mean("head"):dot(c.centroid) * 40)
  return sluice.topk(score * score - score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
