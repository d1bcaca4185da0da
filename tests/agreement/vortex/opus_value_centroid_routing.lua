-- Value-centroid routing: q·(mean value).
local flow = sluice.flow { name = "opus_value_centroid_routing", page = 8 }

function flow.cache(c)
  c.value = c.v:mean("token")
end

function flow.index(q, c)
  local score = q:mean("head"):dot(c.value)
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
