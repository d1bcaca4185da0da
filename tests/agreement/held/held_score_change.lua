-- Surprise: pages whose score rose most since the last step, whatever its height.
local flow = sluice.flow { name = "held_score_change", page = 16 }

function flow.cache(c)
  c.mu = c.k:mean("token")
  c.before = sluice.cfill(0)
end

function flow.index(q, c)
  local score = q:mean("head"):dot(c.mu)
  c.before:save(score)
  return sluice.topk(score - c.before, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
