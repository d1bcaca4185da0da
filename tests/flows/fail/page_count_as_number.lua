local flow = sluice.flow { name = "bad" }

function flow.index(q, c)
  local pages = c.k:extent("page")
  return sluice.topk(sluice.position(), { k = pages / 8 })
end

return flow
