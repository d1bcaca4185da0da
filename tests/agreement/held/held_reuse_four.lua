-- A selection serves four steps: scores are renewed at every fourth step only, and kept in between.
local flow = sluice.flow { name = "held_reuse_four", page = 8 }

function flow.cache(c)
  c.hi, c.lo = c.k:max("token"), c.k:min("token")
  c.kept = sluice.cfill(0)
end

function flow.index(q, c)
  local clock = sluice.load("clock", { axes = {}, init = 0 })
  sluice.save("clock", sluice.where_ge(clock, 3, 0, clock + 1))
  local fresh = (q * c.hi):maximum(q * c.lo):sum("dim"):max("head")
  local score = sluice.where_eq(clock, 0, fresh, c.kept)
  c.kept:save(score)
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 4 })
end

return flow
