-- StreamingLLM (Xiao et al. 2024) as SAS measures it: the first 32 tokens and the last 1024. 1056 tokens are kept.
local p = sluice.pattern
local flow = sluice.flow { name = "sink_window" }

flow.pattern = p.sink(32) | p.window(1024)

return flow
