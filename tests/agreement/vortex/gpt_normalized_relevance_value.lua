-- Normalized relevance value: softmax(q·centroid / √dim) times the mean value norm as a share of all pages'.
local flow = sluice.flow { name = "gpt_normalized_relevance_value", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.energy = c.v:l2norm("dim"):mean("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local relevance = (q:mean("head"):dot(c.centroid) * scale):softmax("page")
  local value = c.energy:normalize("page")
  return sluice.topk(relevance * value, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
