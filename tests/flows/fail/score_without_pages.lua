local flow = sluice.flow { name = "bad" }

function flow.index(q, c)
  return sluice.topk(q:mean("head", "dim"), { k = 4 })
end

return flow
