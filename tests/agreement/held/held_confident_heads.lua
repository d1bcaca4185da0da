-- A head that knows what it wants has a high peak; its attention weighs more than that of a head that spreads it.
local flow = sluice.flow { name = "held_confident_heads", page = 8 }

function flow.cache(c)
  c.mu = c.k:mean("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local p = (q:dot(c.mu) * scale * 1.5):softmax("page")
  return sluice.topk((p * p:max("page")):sum("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
