-- Magnitude only: the mean norm of the page's keys, whatever the query is.
local flow = sluice.flow { name = "opus_magnitude_only", page = 8 }

function flow.cache(c)
  c.norm = c.k:l2norm("dim"):mean("token")
end

function flow.index(q, c)
  return sluice.topk(c.norm, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
