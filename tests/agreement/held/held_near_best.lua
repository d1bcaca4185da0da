-- Pages within a few nats of some head's best page; sharp heads read little, flat ones up to 64 pages of 8.
local flow = sluice.flow { name = "held_near_best", page = 8 }

function flow.cache(c)
  local mu = c.k:mean("token")
  c.up = 0.5 * (c.k:max("token") + mu)
  c.down = 0.5 * (c.k:min("token") + mu)
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local s = (q * c.up):maximum(q * c.down):sum("dim") * scale
  local gap = (s - s:max("page")):max("head")
  return sluice.threshold(gap, { above = -6, first = 1, last = 2, max = 64 })
end

return flow
