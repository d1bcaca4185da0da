-- Quest with half the budget.
local flow = sluice.flow { name = "held_sixteenth_box", page = 16 }

function flow.cache(c)
  c.hi, c.lo = c.k:max("token"), c.k:min("token")
end

function flow.index(q, c)
  local bound = (q * c.hi):maximum(q * c.lo):sum("dim"):max("head")
  return sluice.topk(bound, { ratio = 1 / 16, first = 1, last = 2 })
end

return flow
