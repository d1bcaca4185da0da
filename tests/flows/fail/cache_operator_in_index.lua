local flow = sluice.flow { name = "bad" }

function flow.index(q, c)
  return sluice.topk(c.k:mean_interleave("token", 4):max("dim", "sub"), { k = 4 })
end

return flow
