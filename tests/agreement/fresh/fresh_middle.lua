-- The middle of the context, with a sink and a window.
local flow = sluice.flow { name = "fresh_middle", page = 16 }

function flow.index(q, c)
  local p = sluice.position()
  return sluice.topk(-(p - p:mean("page")):abs(), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
