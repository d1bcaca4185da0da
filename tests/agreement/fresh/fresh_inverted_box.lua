-- Boxes with the order reversed: the pages that promise least.
local flow = sluice.flow { name = "fresh_inverted_box", page = 16 }

function flow.cache(c)
  c.hi = c.k:max("token")
  c.lo = c.k:min("token")
end

function flow.index(q, c)
  local s = (q * c.hi):maximum(q * c.lo):sum("dim"):max("head")
  return sluice.topk(-s, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
