-- Boxes of pages of 128: nearly all overlap.
local flow = sluice.flow { name = "fresh_box_p128", page = 128 }

function flow.cache(c)
  c.hi = c.k:max("token")
  c.lo = c.k:min("token")
end

function flow.index(q, c)
  local s = (q * c.hi):maximum(q * c.lo):sum("dim"):max("head")
  return sluice.topk(s, { ratio = 3 / 16, first = 1, last = 1 })
end

return flow
