-- Models are lost in the middle, so give them the middle: the pages nearest to half of the context.
local flow = sluice.flow { name = "held_middle", page = 8 }

function flow.index(q, c)
  local place = sluice.position()
  return sluice.topk(-(place - 0.5 * place:max("page")):abs(), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
