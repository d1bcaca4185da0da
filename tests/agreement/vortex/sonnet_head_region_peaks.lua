-- Head region peaks: the largest product over every head with the centroid of every quarter of the page.
local flow = sluice.flow { name = "sonnet_head_region_peaks", page = 8 }

function flow.cache(c)
  c.regions = c.k:mean_interleave("token", 2)
end

function flow.index(q, c)
  local score = q:dot(c.regions):max("sub"):max("head")
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
