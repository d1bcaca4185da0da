-- Quest with coarse pages of 32, best head; few fields and a loose box.
local flow = sluice.flow { name = "quest_page32", page = 32 }

function flow.cache(c)
  c.hi, c.lo = c.k:max("token"), c.k:min("token")
end

function flow.index(q, c)
  local score = (q * c.hi):maximum(q * c.lo):sum("dim"):max("head")
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
