-- Mean key scores and an approximate selection that may miss a fifth of the best pages.
local flow = sluice.flow { name = "approx_centroid", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local score = q:dot(c.centroid):mean("head")
  return sluice.approx_topk(score, { ratio = 1 / 8, first = 1, last = 2, tolerate = 0.2 })
end

return flow
