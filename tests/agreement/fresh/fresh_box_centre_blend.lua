-- Half way between what a page could have at best and what it has on average.
local flow = sluice.flow { name = "fresh_box_centre_blend", page = 16 }

function flow.cache(c)
  c.hi = c.k:max("token")
  c.lo = c.k:min("token")
  c.mid = c.k:mean("token")
end

function flow.index(q, c)
  local bound = (q * c.hi):maximum(q * c.lo):sum("dim")
  local s = 0.5 * bound + 0.5 * q:dot(c.mid)
  return sluice.topk(s:max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
