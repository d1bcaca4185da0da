local flow = sluice.flow { name = "bad" }

function flow.cache(c)
  c.hi = c.k:max("head")
end

function flow.index(q, c)
  return sluice.window { last = 4 }
end

return flow
