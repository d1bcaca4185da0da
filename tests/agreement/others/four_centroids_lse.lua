-- Four mean keys a page, joined by log-sum-exp as attention would join them, then shared out over pages by head.
local flow = sluice.flow { name = "four_centroids_lse", page = 8 }

function flow.cache(c)
  c.quarters = c.k:mean_interleave("token", sluice.page_size // 4)
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local x = q:dot(c.quarters) * scale
  local peak = x:max("sub")
  local mass = (x - peak):exp():sum("sub"):log() + peak
  return sluice.topk(mass:softmax("page"):sum("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
