-- A box of mean plus and minus one standard deviation, clipped to the true extremes of the page.
local flow = sluice.flow { name = "clipped_box", page = 8 }

function flow.cache(c)
  local mean = c.k:mean("token")
  local spread = ((c.k * c.k):mean("token") - mean * mean):relu():sqrt()
  c.hi = c.k:max("token"):minimum(mean + spread)
  c.lo = c.k:min("token"):maximum(mean - spread)
end

function flow.index(q, c)
  local score = (q * c.hi):maximum(q * c.lo):sum("dim"):max("head")
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
