-- Outlier value gate: q·centroid (1 + relu(e - mean e)), e the mean value norm, so that pages above the mean energy gain by as much as they stand out.
local flow = sluice.flow { name = "gpt_outlier_value_gate", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.energy = c.v:l2norm("dim"):mean("token")
end

function flow.index(q, c)
  local score = q:mean("head"):dot(c.centroid)
  local gate = 1 + (c.energy - c.energy:mean("page")):relu()
  return sluice.topk(score * gate, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
