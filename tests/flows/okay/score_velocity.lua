-- Rewards pages whose relevance rises since the last step (Vortex, section 14).
local flow = sluice.flow { name = "score_velocity", page = 16 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.previous = sluice.cfill(0)
end

function flow.index(q, c)
  local score = q:mean("head"):dot(c.centroid)
  c.previous:save(score)
  return sluice.topk(score + 0.5 * (score - c.previous), { k = 5, first = 1, last = 2 })
end

return flow
