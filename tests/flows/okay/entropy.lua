-- -p log p: pages of middling probability before both certain and negligible ones.
local flow = sluice.flow { name = "entropy", page = 16 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local p = (q:mean("head"):dot(c.centroid) * scale):softmax("page")
  local contribution = sluice.where_gt(p, 0, -(p * p:log()), 0)
  return sluice.topk(contribution, { k = 7, first = 1, last = 1 })
end

return flow
