-- The page's key is a mean weighted by the norm of each token's value, since weak values matter little.
local flow = sluice.flow { name = "value_weighted_keys", page = 8 }

function flow.cache(c)
  local weight = c.v:l2norm("dim") + 1e-6
  local total = weight:dot(sluice.fill(1, { "token" }), "token")
  c.key = sluice.dot(c.k, weight, "token") / total
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local score = (q:dot(c.key) * scale):softmax("page"):max("head")
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
