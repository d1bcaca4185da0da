local flow = sluice.flow { name = "bad" }
function flow.cache(c)
  for _, x in pairs(c.k) do c.m = x end
end
function flow.index(q, c) return sluice.window { last = 4 } end
return flow
