-- Quest's bound becomes a distribution over pages for each head, and the distributions are added up.
local flow = sluice.flow { name = "quest_softmax_heads", page = 8 }

function flow.cache(c)
  c.hi, c.lo = c.k:max("token"), c.k:min("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local bound = (q * c.hi):maximum(q * c.lo):sum("dim") * scale
  return sluice.topk(bound:softmax("page"):sum("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
