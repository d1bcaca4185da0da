local flow = sluice.flow { name = "bad" }

function flow.cache(c)
  c.seen = sluice.cfill(0)
end

function flow.index(q, c)
  return sluice.topk(c.seen + 1, { k = 4 })
end

return flow
