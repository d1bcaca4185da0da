local flow = sluice.flow { name = "bad" }

function flow.cache(c)
  c.parts = c.k:mean("token"):reshape({ { "sub", 3 }, { "dim", 16 } })
end

function flow.index(q, c)
  return sluice.window { last = 4 }
end

return flow
