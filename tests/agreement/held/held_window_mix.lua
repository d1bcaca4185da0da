-- Half of the budget is a window with sinks, half goes to the pages with the best mean key.
local flow = sluice.flow { name = "held_window_mix", page = 16 }

function flow.cache(c)
  c.mu = c.k:mean("token")
end

function flow.index(q, c)
  local far = sluice.topk(q:mean("head"):dot(c.mu), { ratio = 1 / 16 })
  return sluice.union(sluice.window { first = 2, last = 16 }, far)
end

return flow
