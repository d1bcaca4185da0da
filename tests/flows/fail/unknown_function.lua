local flow = sluice.flow { name = "bad" }

function flow.cache(c)
  c.hi = c.k:max("token")
end

function flow.index(q, c)
  return sluice.topkk(q:mean("head"):dot(c.hi), { k = 4 })
end

return flow
