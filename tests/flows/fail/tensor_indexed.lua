local flow = sluice.flow { name = "bad" }

function flow.index(q, c)
  return sluice.topk(sluice.position() + q[1], { k = 4 })
end

return flow
