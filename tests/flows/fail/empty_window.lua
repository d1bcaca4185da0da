local flow = sluice.flow { name = "bad" }

function flow.index(q, c)
  return sluice.window {}
end

return flow
