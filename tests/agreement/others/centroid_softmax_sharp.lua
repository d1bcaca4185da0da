-- Attention over mean keys at a quarter of the usual temperature, summed over heads: each head backs a few pages only.
local flow = sluice.flow { name = "centroid_softmax_sharp", page = 8 }

local sharpness = 4

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local scale = sharpness / math.sqrt(q:extent("dim"))
  local score = (q:dot(c.centroid) * scale):softmax("page"):sum("head")
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
