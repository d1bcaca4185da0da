-- Shares of attention, tilted towards recent pages by their place in the row.
local flow = sluice.flow { name = "fresh_recency_bias", page = 16 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local p = sluice.position()
  local share = (q:dot(c.centroid) * scale):softmax("page"):mean("head")
  return sluice.topk(share * (p + 1), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
