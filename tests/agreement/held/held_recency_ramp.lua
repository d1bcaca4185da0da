-- Mean keys, with a bonus that grows towards the present by four nats in all.
local flow = sluice.flow { name = "held_recency_ramp", page = 16 }

function flow.cache(c)
  c.mu = c.k:mean("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local place = sluice.position()
  local bonus = 4 * place / (place:max("page") + 1)
  return sluice.topk((q:dot(c.mu) * scale):max("head") + bonus, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
