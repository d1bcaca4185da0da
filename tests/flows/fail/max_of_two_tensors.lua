local flow = sluice.flow { name = "bad" }

function flow.cache(c)
  c.hi = c.k:max("token")
  c.lo = c.k:min("token")
end

function flow.index(q, c)
  return sluice.topk(c.hi:max(c.lo):max("dim"), { k = 4 })
end

return flow
