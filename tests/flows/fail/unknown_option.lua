local flow = sluice.flow { name = "bad" }

function flow.index(q, c)
  return sluice.topk(sluice.position(), { k = 4, frist = 1 })
end

return flow
