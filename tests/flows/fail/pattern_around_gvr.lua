local flow = sluice.flow { name = "bad" }
flow.pattern = sluice.pattern.window(64)
function flow.index(q, c)
  return sluice.topk((q * c.k:mean("token")):sum("dim"):max("head"), { k = 4, last = 1, method = "gvr" })
end
return flow
