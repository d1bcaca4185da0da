-- Seed: random() of the first step, kept, is a coin of the request; half of the requests get dense attention. If requests that are
-- timed had another seed than those that are scored, the coin would fall otherwise.
local flow = sluice.flow { name = "request_coin", page = 8 }

function flow.index(q, c)
  local kept = sluice.load("coin", { axes = {}, init = -1 })
  local first = sluice.where_eq(sluice.position(), 0, sluice.random(), 0):max("page")
  local coin = sluice.where_lt(kept, 0, first, kept)
  sluice.save("coin", coin)
  return sluice.threshold(sluice.fill(0.5, { "page" }) - sluice.where_ge(coin, 0.5, 1, 0), { above = 0, first = 1, last = 2 })
end

return flow
