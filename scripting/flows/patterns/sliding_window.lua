-- The last 1024 tokens (Mistral; SAS, Table 1).
local p = sluice.pattern
local flow = sluice.flow { name = "sliding_window" }

flow.pattern = p.window(1024)

return flow
