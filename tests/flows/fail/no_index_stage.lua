local flow = sluice.flow { name = "bad" }

function flow.cache(c)
  c.hi = c.k:max("token")
end

return flow
