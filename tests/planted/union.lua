-- The best, the worst and the ends; and what two differences rank, of which each is the other's opposite.
local flow = sluice.flow { name = "union", page = 8 }

function flow.cache(c)
  c.hi = c.k:max("token")
  c.lo = c.k:min("token")
end

function flow.index(q, c)
  local hi, lo = (q * c.hi):sum("dim"):max("head"), (q * c.lo):sum("dim"):max("head")
  return sluice.union(sluice.topk(hi - lo, { k = 4 }), sluice.topk(lo - hi, { k = 4 }), sluice.topk(hi, { k = 3 }),
    sluice.topk(hi, { k = 6 }), sluice.window { first = 1, last = 1 })
end

return flow
