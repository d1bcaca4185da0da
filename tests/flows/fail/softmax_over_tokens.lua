local flow = sluice.flow { name = "bad" }

function flow.cache(c)
  c.norm = c.k:l2norm("dim")
end

function flow.index(q, c)
  return sluice.topk(q:dot(c.k):softmax():max("head", "token"), { k = 4 })
end

return flow
