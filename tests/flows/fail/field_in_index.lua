local flow = sluice.flow { name = "bad" }

function flow.index(q, c)
  c.hi = c.k:max("token")
  return sluice.window { last = 4 }
end

return flow
