local flow = sluice.flow { name = "bad" }

function flow.cache(c)
  c.norm = c.k:l2norm("dim")
end

function flow.index(q, c)
  return sluice.topk(c.norm:normalize("page"):max("token"), { k = 4 })
end

return flow
