-- Sigmoid-gated Quest: Σ sigmoid(hi - lo) max(q hi, q lo), in which narrow channels count half as much as wide ones.
local flow = sluice.flow { name = "sonnet_sigmoid_gated_quest", page = 8 }

function flow.cache(c)
  c.hi = c.k:max("token")
  c.lo = c.k:min("token")
end

function flow.index(q, c)
  local route = q:mean("head")
  local gate = (c.hi - c.lo):sigmoid()
  local score = (gate * (route * c.hi):maximum(route * c.lo)):sum("dim")
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
