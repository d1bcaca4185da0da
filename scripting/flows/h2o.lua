-- Heavy hitters (H2O, Zhang et al. 2023), by page: keep the pages that past queries attended to most.
-- Attention is estimated from mean keys, so that pages outside the selection gather credit as well.
local flow = sluice.flow { name = "h2o", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.credit = sluice.cfill(0)
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local attention = (q:dot(c.centroid) * scale):softmax("page"):mean("head")
  local credit = c.credit + attention
  c.credit:save(credit)
  return sluice.topk(credit, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
