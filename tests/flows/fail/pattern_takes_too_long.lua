local p = sluice.pattern
local flow = sluice.flow { name = "bad" }
local all = p.window(1024)
for _ = 1, 100 do all = p.rect { size = { 1, 1 } } >> all end
flow.pattern = all
return flow
