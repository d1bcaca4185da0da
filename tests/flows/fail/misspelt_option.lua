local flow = sluice.flow { name = "bad" }

function flow.index(q, c)
  return sluice.topk(sluice.position(), { kk = 4 })
end

return flow
