local flow = sluice.flow { name = "bad" }

function flow.index(q, c)
  return sluice.topk(sluice.position() + 0 / 0, { k = 4 })
end

return flow
