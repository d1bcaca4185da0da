local p = sluice.pattern
local flow = sluice.flow { name = "bad" }
while true do p.window(4) end
