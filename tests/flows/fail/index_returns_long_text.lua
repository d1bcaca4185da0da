local flow = sluice.flow { name = "x" }

function flow.index(q, c)
  return ("x"):rep(5000)
end

return flow
