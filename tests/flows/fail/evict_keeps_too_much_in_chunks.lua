local flow = sluice.flow { name = "it", page = 16 }
function flow.cache(c) c.heavy = sluice.cfill(0, { "token" }) end
function flow.after(q, c, mass)
  c.heavy:save(c.heavy + mass:sum("head"))
  sluice.evict(c.heavy, { budget = 64, keep = sluice.pattern.window(64) })
end
return flow
