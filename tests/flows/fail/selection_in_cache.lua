local flow = sluice.flow { name = "bad" }

function flow.cache(c)
  c.best = sluice.window { last = 4 }
end

function flow.index(q, c)
  return sluice.window { last = 4 }
end

return flow
