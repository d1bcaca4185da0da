-- Boxes whose query has the wrong sign in a quarter of the channels.
local flow = sluice.flow { name = "fresh_flipped_quarter", page = 8 }

function flow.cache(c)
  c.hi = c.k:max("token")
  c.lo = c.k:min("token")
end

function flow.index(q, c)
  local n = q:extent("dim")
  local x = q - 2 * q:mask_slice("dim", n // 4, n // 2)
  local s = (x * c.hi):maximum(x * c.lo):sum("dim"):max("head")
  return sluice.topk(s, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
