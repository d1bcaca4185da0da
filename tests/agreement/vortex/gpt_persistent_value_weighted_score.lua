-- Persistent value-weighted score: a running mean (0.9) of Σ q centroid |v|, channels weighted by their value norm.
local flow = sluice.flow { name = "gpt_persistent_value_weighted_score", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.weight = c.v:l2norm("token")
  c.credit = sluice.cfill(0)
end

function flow.index(q, c)
  local score = (q:mean("head") * c.weight):dot(c.centroid)
  local credit = 0.9 * c.credit + 0.1 * score
  c.credit:save(credit)
  return sluice.topk(credit, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
