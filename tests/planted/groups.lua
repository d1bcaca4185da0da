-- Groups of four tokens, of which the newest page may hold one that is not full, or empty.
local flow = sluice.flow { name = "groups", page = 16 }

function flow.cache(c)
  c.part = c.k:mean_interleave("token", 4)
end

function flow.index(q, c)
  return sluice.topk((q * c.part):sum("dim"):min("sub"):max("head"), { k = 9, last = 1 })
end

return flow
