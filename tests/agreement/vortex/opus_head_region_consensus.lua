-- Head region consensus: the smallest product over the grid of every head with the centroid of every quarter of the page.
local flow = sluice.flow { name = "opus_head_region_consensus", page = 8 }

function flow.cache(c)
  c.regions = c.k:mean_interleave("token", 2)
end

function flow.index(q, c)
  local grid = q:dot(c.regions)                     -- [page, head, sub]
  return sluice.topk(grid:min("sub"):min("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
