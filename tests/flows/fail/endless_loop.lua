local flow = sluice.flow { name = "bad" }

function flow.index(q, c)
  while true do end
end

return flow
