-- Boxes, asked by the first query head alone.
local flow = sluice.flow { name = "fresh_one_head_box", page = 16 }

function flow.cache(c)
  c.hi = c.k:max("token")
  c.lo = c.k:min("token")
end

function flow.index(q, c)
  local s = (q * c.hi):maximum(q * c.lo):sum("dim")
  return sluice.topk(s:mask_slice("head", 0, 1):sum("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
