-- Without a query: a sliding window of the newest eighth of the context.
local flow = sluice.flow { name = "recent_eighth", page = 8 }

function flow.index(q, c)
  return sluice.topk(sluice.position(), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
