local p = sluice.pattern
local flow = sluice.flow { name = "bad" }
local all = p.window(1024)
for i = 1, 8 do all = all | (p.rect { size = { 2, 2 }, stride = 2 } >> p.window(1024 + i)) end
flow.pattern = all
return flow
