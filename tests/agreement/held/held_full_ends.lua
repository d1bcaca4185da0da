-- The first and the last layer dense, and half the usual share in all others.
local flow = sluice.flow { name = "held_full_ends", page = 8, layers = { [0] = "full", [-1] = "full", rest = "sparse" } }

function flow.cache(c)
  c.hi, c.lo = c.k:max("token"), c.k:min("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local bound = (q * c.hi):maximum(q * c.lo):sum("dim") * scale
  return sluice.topk(bound:softmax("page"):max("head"), { ratio = 1 / 16, first = 1, last = 2 })
end

return flow
