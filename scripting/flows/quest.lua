-- Quest (Tang et al. 2024): the largest score that any key inside the page's bounding box could have.
-- For each channel that is q * hi or q * lo, whichever is larger. Every query head has a say: the best one counts.
local flow = sluice.flow { name = "quest", page = 8 }

function flow.cache(c)
  c.hi = c.k:max("token")
  c.lo = c.k:min("token")
end

function flow.index(q, c)
  local score = (q * c.hi):maximum(q * c.lo):sum("dim"):max("head")
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
