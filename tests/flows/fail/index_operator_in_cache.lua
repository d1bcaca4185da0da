local flow = sluice.flow { name = "bad" }

function flow.cache(c)
  c.total = c.k:sum("token")
end

function flow.index(q, c)
  return sluice.window { last = 4 }
end

return flow
