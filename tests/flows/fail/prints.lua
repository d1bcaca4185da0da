local flow = sluice.flow { name = "bad" }

function flow.index(q, c)
  print("hello")
  return sluice.window { last = 4 }
end

return flow
