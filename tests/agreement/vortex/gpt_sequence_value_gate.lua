-- Sequence value gate: q·centroid for pages whose q·(mean value) exceeds its mean along the sequence; the others come last.
local flow = sluice.flow { name = "gpt_sequence_value_gate", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.value = c.v:mean("token")
end

function flow.index(q, c)
  local route = q:mean("head")
  local score, value = route:dot(c.centroid), route:dot(c.value)
  local gated = sluice.where_gt(value, value:mean("page"), score, -math.huge)
  return sluice.topk(gated, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
