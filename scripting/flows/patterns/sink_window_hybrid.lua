-- Every fourth layer is full; the others keep the first 32 tokens and the last 1024. For models of 28 to 31 layers,
-- such as SmolLM2 and Qwen3-0.6B (sluice plan sink_window_hybrid --geometry qwen3-0.6b).
local p = sluice.pattern
local flow = sluice.flow { name = "sink_window_hybrid" }

local by_layer = { rest = p.sink(32) | p.window(1024) }
for layer = 3, 27, 4 do by_layer[layer] = "full" end
flow.pattern = by_layer

return flow
