local flow = sluice.flow { name = "bad" }

function flow.index(q, c)
  return sluice.topk(sluice.position(), { k = "many" })
end

return flow
