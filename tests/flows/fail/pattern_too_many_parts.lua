local p = sluice.pattern
local flow = sluice.flow { name = "bad" }
local all = p.window(4)
for i = 1, 1000 do all = all | p.diag { offset = 10 * i, size = 2 } end
flow.pattern = all
return flow
