-- Sub-block peak: the largest q·centroid of the page's four quarters.
local flow = sluice.flow { name = "gpt_sub_block_peak", page = 8 }

function flow.cache(c)
  c.quarters = c.k:mean_interleave("token", 2)
end

function flow.index(q, c)
  local score = q:mean("head"):dot(c.quarters):max("sub")
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
