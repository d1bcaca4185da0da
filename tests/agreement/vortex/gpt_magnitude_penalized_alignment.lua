-- Magnitude-penalized alignment: q·centroid less a quarter of |q|·|centroid|.
local flow = sluice.flow { name = "gpt_magnitude_penalized_alignment", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.magnitude = c.k:mean("token"):abs()
end

function flow.index(q, c)
  local route = q:mean("head")
  local score = route:dot(c.centroid) - 0.25 * route:abs():dot(c.magnitude)
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
