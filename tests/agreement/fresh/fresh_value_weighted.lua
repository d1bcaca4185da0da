-- Attention times the length of the values that it would bring in.
local flow = sluice.flow { name = "fresh_value_weighted", page = 16 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.weight = c.v:l2norm("dim"):mean("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local s = (q:dot(c.centroid) * scale):softmax("page") * c.weight
  return sluice.topk(s:sum("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
