-- Half a box: the upper corner for every channel, whatever the query's sign.
local flow = sluice.flow { name = "fresh_hi_only", page = 8 }

function flow.cache(c)
  c.hi = c.k:max("token")
end

function flow.index(q, c)
  return sluice.topk(q:dot(c.hi):max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
