-- As many of the oldest pages as of the newest.
local flow = sluice.flow { name = "fresh_both_ends", page = 16 }

function flow.index(q, c)
  return sluice.window { first = 16, last = 16 }
end

return flow
