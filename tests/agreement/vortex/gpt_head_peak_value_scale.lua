-- Head-peak value scale: the largest q·centroid over the heads, times the mean value norm of the page.
local flow = sluice.flow { name = "gpt_head_peak_value_scale", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.energy = c.v:l2norm("dim"):mean("token")
end

function flow.index(q, c)
  local peak = q:dot(c.centroid):max("head")
  return sluice.topk(peak * c.energy, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
