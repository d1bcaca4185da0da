-- Recency alone: the newest pages, and nothing of the start.
local flow = sluice.flow { name = "held_recent_only", page = 16 }

function flow.index(q, c)
  return sluice.topk(sluice.position(), { ratio = 1 / 8, last = 1 })
end

return flow
