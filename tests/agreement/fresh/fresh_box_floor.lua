-- The least score that a key in the box could have: pages that are good throughout.
local flow = sluice.flow { name = "fresh_box_floor", page = 16 }

function flow.cache(c)
  c.hi = c.k:max("token")
  c.lo = c.k:min("token")
end

function flow.index(q, c)
  local s = (q * c.hi):minimum(q * c.lo):sum("dim"):max("head")
  return sluice.topk(s, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
