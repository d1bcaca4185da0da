-- The last 512 tokens.
local flow = sluice.flow { name = "fresh_window_only", page = 16 }

function flow.index(q, c)
  return sluice.window { last = 32 }
end

return flow
