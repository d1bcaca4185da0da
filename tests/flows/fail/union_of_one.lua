local flow = sluice.flow { name = "bad" }
function flow.index(q, c)
  return sluice.union(sluice.window { last = 4 })
end
return flow
