-- Control: every page draws a number once, and keeps it for good. Tells chance at every step from one unlucky choice.
local flow = sluice.flow { name = "held_frozen_dice", page = 16 }

function flow.cache(c)
  c.lot = sluice.cfill(-1)
end

function flow.index(q, c)
  local lot = sluice.where_lt(c.lot, 0, sluice.random(), c.lot)
  c.lot:save(lot)
  return sluice.topk(lot, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
