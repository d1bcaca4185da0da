local flow = sluice.flow { name = "bad" }

function flow.index(q, c)
  return topk(sluice.position(), { k = 4 })
end

return flow
