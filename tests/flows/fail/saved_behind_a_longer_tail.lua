local flow = sluice.flow { name = "it", page = 16 }
function flow.cache(c)
  c.ksum = sluice.cfill(0, { "dim" })
  c.vsum = c.v:mean("token")
end
function flow.index(q, c)
  return sluice.cover { refine = "none", k = c.ksum, v = c.vsum, tail = 40 }
end
function flow.after(q, c, mass)
  c.ksum:save(c.k:mean("token"), { tail = 128 })
end
return flow
