local flow = sluice.flow { name = "bad" }

function flow.index(q, c)
  return ("x"):rep(1000000000)
end

return flow
