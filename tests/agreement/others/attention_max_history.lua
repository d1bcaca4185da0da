-- A page is worth the largest attention that it ever had, fading by two percent a step; 32 pages.
local flow = sluice.flow { name = "attention_max_history", page = 16 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.best = sluice.cfill(0)
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local now = (q:dot(c.centroid) * scale):softmax("page"):max("head")
  local best = now:maximum(0.98 * c.best)
  c.best:save(best)
  return sluice.topk(best, { k = 32, first = 1, last = 2 })
end

return flow
