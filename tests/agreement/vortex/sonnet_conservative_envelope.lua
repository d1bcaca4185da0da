-- Conservative envelope: q·lo, with the smallest value that each channel takes among the page's keys.
local flow = sluice.flow { name = "sonnet_conservative_envelope", page = 8 }

function flow.cache(c)
  c.lo = c.k:min("token")
end

function flow.index(q, c)
  local score = q:mean("head"):dot(c.lo)
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
