-- Boxes over the first half of the channels.
local flow = sluice.flow { name = "fresh_low_half_box", page = 16 }

function flow.cache(c)
  c.hi = c.k:max("token")
  c.lo = c.k:min("token")
end

function flow.index(q, c)
  local x = q:mask_slice("dim", 0, q:extent("dim") // 2)
  local s = (x * c.hi):maximum(x * c.lo):sum("dim"):max("head")
  return sluice.topk(s, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
