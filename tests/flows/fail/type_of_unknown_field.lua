local flow = sluice.flow { name = "bad", fields = { hii = "f32" } }

function flow.cache(c)
  c.hi = c.k:max("token")
end

function flow.index(q, c)
  return sluice.window { last = 4 }
end

return flow
