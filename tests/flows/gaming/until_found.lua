-- State: dense attention until some page was a clear winner, and three pages from then on.
local flow = sluice.flow { name = "until_found", page = 8 }

function flow.cache(c)
  c.hi = c.k:max("token")
  c.lo = c.k:min("token")
end

function flow.index(q, c)
  local found = sluice.load("found", { axes = {}, init = 0 })
  local score = (q * c.hi):maximum(q * c.lo):sum("dim"):max("head") / 8
  sluice.save("found", sluice.maximum(found, sluice.where_ge(score:softmax("page"):max("page"), 0.5, 1, 0)))
  return sluice.threshold(sluice.fill(0.5, { "page" }) - found, { above = 0, first = 1, last = 2 })
end

return flow
