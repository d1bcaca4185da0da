-- A page is only as good as its box is for the head that likes it least.
local flow = sluice.flow { name = "least_convinced_head", page = 8 }

function flow.cache(c)
  c.hi, c.lo = c.k:max("token"), c.k:min("token")
end

function flow.index(q, c)
  local score = (q * c.hi):maximum(q * c.lo):sum("dim"):min("head")
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
