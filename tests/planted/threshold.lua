-- A bound that a page's score meets.
local flow = sluice.flow { name = "threshold", page = 8 }

function flow.index(q, c)
  return sluice.threshold(sluice.position(), { above = 10, first = 1, last = 1 })
end

return flow
