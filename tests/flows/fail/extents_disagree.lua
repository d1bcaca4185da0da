local flow = sluice.flow { name = "bad" }

function flow.cache(c)
  c.a = c.k:mean_interleave("token", 4)
  c.b = c.k:mean_interleave("token", 8)
end

function flow.index(q, c)
  return sluice.topk((c.a * c.b):sum("dim", "sub"), { k = 4 })
end

return flow
