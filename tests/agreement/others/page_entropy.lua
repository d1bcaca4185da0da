-- The contribution of each page to the entropy of the estimated attention, -p log p, summed over heads.
local flow = sluice.flow { name = "page_entropy", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local p = (q:dot(c.centroid) * scale):softmax("page")
  local score = sluice.where_gt(p, 0, -(p * p:log()), 0):sum("head")
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
