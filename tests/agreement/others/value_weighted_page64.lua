-- Attention over mean keys times the norm of the mean value, in large pages and on a quarter of them.
local flow = sluice.flow { name = "value_weighted_page64", page = 64 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.energy = c.v:mean("token"):l2norm("dim")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local share = (q:dot(c.centroid) * scale):softmax("page"):sum("head")
  return sluice.topk(share * c.energy, { ratio = 1 / 4, first = 1, last = 1 })
end

return flow
