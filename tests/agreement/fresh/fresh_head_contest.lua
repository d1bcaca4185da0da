-- Softmax along the wrong axis: pages on which one head stands out among the others.
local flow = sluice.flow { name = "fresh_head_contest", page = 16 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local s = (q:dot(c.centroid) * scale):softmax("head")
  return sluice.topk(s:max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
