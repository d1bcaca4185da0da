-- Seed: a coin for every step, layer and head, which differs if any of them is another where the clock looks.
local flow = sluice.flow { name = "step_coin", page = 8 }

function flow.index(q, c)
  local coin = sluice.where_eq(sluice.position(), 0, sluice.random(), 0):max("page")
  return sluice.threshold(sluice.fill(0.5, { "page" }) - sluice.where_ge(coin, 0.5, 1, 0), { above = 0, first = 1, last = 2 })
end

return flow
