local flow = sluice.flow { name = "bad" }

function flow.index(q, c)
  return sluice.pattern.window(8), sluice.pattern.sink(1)
end

return flow
