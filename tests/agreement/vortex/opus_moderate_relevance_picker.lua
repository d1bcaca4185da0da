-- Moderate-relevance picker: s (1 - softmax(s)) with s = q·centroid / √dim, which holds back pages that take most of the softmax.
local flow = sluice.flow { name = "opus_moderate_relevance_picker", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local score = q:mean("head"):dot(c.centroid) * scale
  local rest = 1 - score:softmax("page")
  return sluice.topk(score * rest, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
