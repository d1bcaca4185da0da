-- Entropy contribution: -p log p with p = softmax(q·centroid / √dim), largest at middling p.
local flow = sluice.flow { name = "sonnet_entropy_contribution", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local p = (q:mean("head"):dot(c.centroid) * scale):softmax("page")
  local contribution = sluice.where_gt(p, 0, -(p * p:log()), 0)
  return sluice.topk(contribution, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
