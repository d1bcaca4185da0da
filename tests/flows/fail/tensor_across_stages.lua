local flow = sluice.flow { name = "bad" }

function flow.cache(c)
  hidden = c.k:max("token")
  c.hi = hidden
end

function flow.index(q, c)
  return sluice.topk(q:mean("head"):dot(hidden), { k = 4 })
end

return flow
