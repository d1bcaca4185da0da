-- EPIC: the blocks that have the first `edge` tokens of each run of blocks that is copied. No layer has to be looked at.
local edge = sluice.parameter("edge", 16)
local flow = sluice.flow { name = "epic", page = sluice.parameter("page", 16), layers = { rest = "full" } }

function flow.recompute(r)
  return sluice.threshold(-r.from_edge:min("token"), { above = -edge })
end

return flow
