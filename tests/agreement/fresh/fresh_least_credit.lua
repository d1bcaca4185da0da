-- Round robin: pages that have got least attention so far.
local flow = sluice.flow { name = "fresh_least_credit", page = 16 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.credit = sluice.cfill(0)
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local credit = c.credit + (q:dot(c.centroid) * scale):softmax("page"):mean("head")
  c.credit:save(credit)
  return sluice.topk(-credit, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
