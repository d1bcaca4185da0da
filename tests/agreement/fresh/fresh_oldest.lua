-- The oldest pages and the newest one.
local flow = sluice.flow { name = "fresh_oldest", page = 32 }

function flow.index(q, c)
  return sluice.topk(-sluice.position(), { ratio = 1 / 8, last = 1 })
end

return flow
