local flow = sluice.flow { name = "bad" }

function flow.index(q, c)
  local s = "x"
  while true do s = s .. s end
end

return flow
