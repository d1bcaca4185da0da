-- Each page has two mean keys, of its earlier and its later half; the better half and the best head count.
local flow = sluice.flow { name = "two_centroids_max", page = 8 }

function flow.cache(c)
  c.halves = c.k:mean_interleave("token", sluice.page_size // 2)
end

function flow.index(q, c)
  return sluice.topk(q:dot(c.halves):max("sub"):max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
