-- A sink of 64 tokens, a window of 128, and boxes for what lies between.
local flow = sluice.flow { name = "fresh_box_sink_window", page = 16 }

function flow.cache(c)
  c.hi = c.k:max("token")
  c.lo = c.k:min("token")
end

function flow.index(q, c)
  local s = (q * c.hi):maximum(q * c.lo):sum("dim"):max("head")
  return sluice.union(sluice.window { first = 4, last = 8 }, sluice.topk(s, { ratio = 1 / 10 }))
end

return flow
