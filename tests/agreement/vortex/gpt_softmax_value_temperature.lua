-- Softmax value temperature: softmax(q·centroid / √dim) over the pages, times the mean value norm.
local flow = sluice.flow { name = "gpt_softmax_value_temperature", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.energy = c.v:l2norm("dim"):mean("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local share = (q:mean("head"):dot(c.centroid) * scale):softmax("page")
  return sluice.topk(share * c.energy, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
