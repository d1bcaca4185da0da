-- One budget in two: some pages by boxes, the rest by chance.
local flow = sluice.flow { name = "fresh_random_or_box", page = 16 }

function flow.cache(c)
  c.hi = c.k:max("token")
  c.lo = c.k:min("token")
end

function flow.index(q, c)
  local s = (q * c.hi):maximum(q * c.lo):sum("dim"):max("head")
  return sluice.union(sluice.topk(s, { ratio = 1 / 32, last = 1 }), sluice.topk(sluice.random(), { ratio = 3 / 32 }))
end

return flow
