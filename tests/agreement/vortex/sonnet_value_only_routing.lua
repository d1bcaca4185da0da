-- Value-only routing: q·(mean value), without a look at the keys.
local flow = sluice.flow { name = "sonnet_value_only_routing", page = 8 }

function flow.cache(c)
  c.value = c.v:mean("token")
end

function flow.index(q, c)
  local score = q:mean("head"):dot(c.value)
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
