-- A pooled key in which long keys count more: large scores come from them, and a plain mean drowns them.
local flow = sluice.flow { name = "held_norm_pooled", page = 8 }

function flow.cache(c)
  local length = c.k:l2norm("dim")
  local w = (length - length:max("token")):exp()
  c.pooled = (c.k * w):mean("token") / w:mean("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local p = (q:dot(c.pooled) * scale):softmax("page")
  return sluice.topk(p:sum("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
