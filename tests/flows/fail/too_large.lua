local flow = sluice.flow { name = "bad" }

function flow.index(q, c)
  return sluice.topk((q:mean("head"):reshape({ { "sub", 64 } }) * c.k * q):max("sub", "dim", "token", "head"), { k = 4 })
end

return flow
