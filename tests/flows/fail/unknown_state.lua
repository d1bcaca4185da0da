local flow = sluice.flow { name = "bad" }

function flow.index(q, c)
  return sluice.topk(sluice.load("seen"), { k = 4 })
end

return flow
