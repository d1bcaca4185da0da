local p = sluice.pattern
local flow = sluice.flow { name = "bad" }
flow.pattern = p.rect { size = { 4, math.huge } } >> p.window(4)
return flow
