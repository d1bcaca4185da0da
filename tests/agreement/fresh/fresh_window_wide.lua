-- A small sink and a wide window, a quarter in all.
local flow = sluice.flow { name = "fresh_window_wide", page = 32 }

function flow.index(q, c)
  return sluice.window { first = 1, last = 31 }
end

return flow
