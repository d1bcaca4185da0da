-- Quest with pages of 16 and an eighth of the context, mean over the heads.
local flow = sluice.flow { name = "quest_page16", page = 16 }

function flow.cache(c)
  c.hi, c.lo = c.k:max("token"), c.k:min("token")
end

function flow.index(q, c)
  local score = (q * c.hi):maximum(q * c.lo):sum("dim"):mean("head")
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
