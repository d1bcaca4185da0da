-- Pessimistic Quest: pages whose worst possible key is still good, so nothing is read in vain.
local flow = sluice.flow { name = "held_lower_bound", page = 16 }

function flow.cache(c)
  c.hi, c.lo = c.k:max("token"), c.k:min("token")
end

function flow.index(q, c)
  local worst = (q * c.hi):minimum(q * c.lo):sum("dim"):max("head")
  return sluice.topk(worst, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
