local flow = sluice.flow { name = "bad" }
function flow.index(q, c)
  sluice.save("query", q)
  return sluice.window { last = 4 }
end
return flow
