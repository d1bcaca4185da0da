-- Pages of 32 with four mean keys of eight tokens each, joined by log-sum-exp: fewer pages to sort, similar resolution.
local flow = sluice.flow { name = "held_lse_eighths", page = 32 }

function flow.cache(c)
  c.parts = c.k:mean_interleave("token", 8)
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local s = q:dot(c.parts) * scale
  local top = s:max("sub")
  local mass = (s - top):exp():sum("sub"):log() + top
  return sluice.topk(mass:softmax("page"):sum("head"), { ratio = 1 / 8, first = 1, last = 1 })
end

return flow
