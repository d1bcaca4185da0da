local flow = sluice.flow { name = "bad" }
function flow.index(q, c)
  return sluice.pattern.window(64)
end
return flow
