-- Every head votes for the pages with more than twice its mean attention; ties go by the largest share.
local flow = sluice.flow { name = "head_votes", page = 16 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local p = (q:dot(c.centroid) * scale):softmax("page")
  local votes = sluice.where_gt(p, 2 * p:mean("page"), 1, 0):sum("head")
  return sluice.topk(votes + p:max("head"), { ratio = 3 / 16, first = 1, last = 2 })
end

return flow
