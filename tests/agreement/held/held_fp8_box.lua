-- Boxes kept in eight bits, so that pages of 8 cost no more than bf16 boxes of 16; heads agree by their mean bound.
local flow = sluice.flow { name = "held_fp8_box", page = 8, fields = { hi = "e4m3", lo = "e4m3" } }

function flow.cache(c)
  c.hi = c.k:max("token")
  c.lo = c.k:min("token")
end

function flow.index(q, c)
  local bound = (q * c.hi):maximum(q * c.lo):sum("dim"):mean("head")
  return sluice.topk(bound, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
