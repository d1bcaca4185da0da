-- Quest's box bound, but every query head spends one unit of attention over the pages before the heads are added.
local flow = sluice.flow { name = "held_box_softmax", page = 16 }

function flow.cache(c)
  c.hi = c.k:max("token")
  c.lo = c.k:min("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local bound = (q * c.hi):maximum(q * c.lo):sum("dim") * scale
  return sluice.topk(bound:softmax("page"):sum("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
