-- Without a query: attention sinks and a window of the newest 512 tokens.
local flow = sluice.flow { name = "sink_window_512", page = 8 }

function flow.index(q, c)
  return sluice.window { first = 1, last = 64 }
end

return flow
