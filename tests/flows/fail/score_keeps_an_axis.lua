local flow = sluice.flow { name = "bad" }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  return sluice.topk(q:dot(c.centroid), { k = 4 })
end

return flow
