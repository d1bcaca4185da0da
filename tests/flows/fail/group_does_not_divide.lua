local flow = sluice.flow { name = "bad" }

function flow.cache(c)
  c.parts = c.k:mean_interleave("token", 5)
end

function flow.index(q, c)
  return sluice.window { last = 4 }
end

return flow
