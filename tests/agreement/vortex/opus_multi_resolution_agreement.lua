-- Multi-resolution agreement: the smallest q·centroid over four parts of the page.
local flow = sluice.flow { name = "opus_multi_resolution_agreement", page = 8 }

function flow.cache(c)
  c.parts = c.k:mean_interleave("token", 2)
end

function flow.index(q, c)
  local score = q:mean("head"):dot(c.parts):min("sub")
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
