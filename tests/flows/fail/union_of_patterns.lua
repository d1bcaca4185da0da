local p = sluice.pattern
local flow = sluice.flow { name = "bad" }
function flow.index(q, c)
  return sluice.union(p.window(64), p.sink(4))
end
return flow
