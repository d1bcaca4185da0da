-- StreamingLLM (Xiao et al. 2023): attention sinks at the start and a window of recent tokens, whatever the query asks.
-- 64 tokens of sink and 448 of window; it never looks at what lies between.
local flow = sluice.flow { name = "streaming", page = 16 }

function flow.index(q, c)
  return sluice.window { first = 4, last = 28 }
end

return flow
