-- Bounding-box bound by head, turned into shares of attention; the heads add theirs up.
local flow = sluice.flow { name = "fresh_box_softvote", page = 8 }

function flow.cache(c)
  c.hi, c.lo = c.k:max("token"), c.k:min("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local bound = (q * c.hi):maximum(q * c.lo):sum("dim")
  local share = (bound * scale):softmax("page"):sum("head")
  return sluice.topk(share, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
