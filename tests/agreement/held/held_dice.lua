-- Control: pages of 8 by chance at every step, sinks and a short window kept.
local flow = sluice.flow { name = "held_dice", page = 8 }

function flow.index(q, c)
  return sluice.topk(sluice.random(), { ratio = 1 / 8, first = 2, last = 4 })
end

return flow
