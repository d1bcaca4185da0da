-- Lower-envelope penalty: q·centroid less half of q·lo, lo the smallest of each channel among the page's keys.
local flow = sluice.flow { name = "gpt_lower_envelope_penalty", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.lo = c.k:min("token")
end

function flow.index(q, c)
  local route = q:mean("head")
  local score = route:dot(c.centroid) - 0.5 * route:dot(c.lo)
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
