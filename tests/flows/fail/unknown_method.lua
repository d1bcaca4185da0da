local flow = sluice.flow { name = "bad" }

function flow.index(q, c)
  return sluice.topk(c.k:maxx("token", "dim"), { k = 4 })
end

return flow
