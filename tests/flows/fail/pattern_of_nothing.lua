local p = sluice.pattern
local flow = sluice.flow { name = "bad" }
flow.pattern = p.window(8) & p.diag { offset = 8, size = 4 }
return flow
