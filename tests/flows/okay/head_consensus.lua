-- Quest's envelope for every head, and the least convinced head decides.
local flow = sluice.flow { name = "head_consensus", page = 8, kv = "f32" }

function flow.cache(c)
  c.hi, c.lo = c.k:max("token"), c.k:min("token")
end

function flow.index(q, c)
  return sluice.topk((q * c.hi):maximum(q * c.lo):sum("dim"):min("head"), { k = 8, last = 1 })
end

return flow
