local p = sluice.pattern
local flow = sluice.flow { name = "bad" }
flow.pattern = p.window(64)
function flow.index(q, c)
  return sluice.union(p.window(6), p.sink(4))
end
return flow
