-- Pages of 32 with four mean keys each, the best of which counts; three sixteenths of the pages.
local flow = sluice.flow { name = "four_centroids_page32", page = 32 }

function flow.cache(c)
  c.parts = c.k:mean_interleave("token", 8)
end

function flow.index(q, c)
  local score = q:dot(c.parts):max("sub"):max("head")
  return sluice.topk(score, { ratio = 3 / 16, first = 1, last = 1 })
end

return flow
