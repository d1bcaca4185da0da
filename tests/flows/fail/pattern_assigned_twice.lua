local p = sluice.pattern
local flow = sluice.flow { name = "bad" }
flow.pattern = p.window(64)
flow.pattern = p.window(32)
return flow
