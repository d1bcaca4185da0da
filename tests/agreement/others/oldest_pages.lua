-- Without a query, and a poor idea: the oldest eighth of the context.
local flow = sluice.flow { name = "oldest_pages", page = 8 }

function flow.index(q, c)
  return sluice.topk(-sluice.position(), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
