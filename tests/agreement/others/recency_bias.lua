-- Mean key scores with up to two units of logit more for newer pages, linear in age.
local flow = sluice.flow { name = "recency_bias", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local place = sluice.position()
  local age = place / (place:max("page") + 1)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local score = (q:dot(c.centroid) * scale):max("head") + 2 * age
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
