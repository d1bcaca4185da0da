local flow = sluice.flow { name = "bad", prefill = "dense" }
function flow.index(q, c) return sluice.topk(q:mean("head"):dot(c.k):max("token"), { k = 4 }) end
return flow
