-- Quest's bounding box, with the heads' bounds added up instead of the best one taken.
local flow = sluice.flow { name = "quest_sum_heads", page = 8 }

function flow.cache(c)
  c.hi = c.k:max("token")
  c.lo = c.k:min("token")
end

function flow.index(q, c)
  local bound = (q * c.hi):maximum(q * c.lo):sum("dim")
  return sluice.topk(bound:sum("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
