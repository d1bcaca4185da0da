-- Attention that pages have got so far, forgotten by and by, beside what the query asks now.
local flow = sluice.flow { name = "fresh_credit_decay", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.credit = sluice.cfill(0)
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local now = (q:dot(c.centroid) * scale):softmax("page"):mean("head")
  local credit = 0.8 * c.credit + now
  c.credit:save(credit)
  return sluice.topk(now + 0.2 * credit, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
