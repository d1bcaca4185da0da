local flow = sluice.flow { name = "bad" }

function flow.cache(c)
  c.bias = 0.5
end

function flow.index(q, c)
  return sluice.window { last = 4 }
end

return flow
