local p = sluice.pattern
local flow = sluice.flow { name = "bad" }
flow.pattern = { first = p.window(64) }
return flow
