-- Pages of 64 with eight mean keys, joined by log-sum-exp by head; a twelfth of the pages.
local flow = sluice.flow { name = "eight_centroids_page64", page = 64 }

function flow.cache(c)
  c.parts = c.k:mean_interleave("token", 8)
end

function flow.index(q, c)
  local x = q:dot(c.parts) * (1 / math.sqrt(q:extent("dim")))
  local peak = x:max("sub")
  local mass = (x - peak):exp():sum("sub"):log() + peak
  return sluice.topk(mass:softmax("page"):sum("head"), { ratio = 1 / 12, first = 1, last = 1 })
end

return flow
