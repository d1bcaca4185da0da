local flow = sluice.flow { name = "bad" }

function flow.index(q, c)
  return sluice.topk(sluice.position():conv1d({ 0.5, 0.5 }), { k = 4 })
end

return flow
