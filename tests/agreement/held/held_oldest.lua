-- Long sinks: the oldest eighth of the context, and the page being written.
local flow = sluice.flow { name = "held_oldest", page = 16 }

function flow.index(q, c)
  return sluice.topk(-sluice.position(), { ratio = 1 / 8, first = 1, last = 1 })
end

return flow
