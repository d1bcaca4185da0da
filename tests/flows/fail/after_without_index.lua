local flow = sluice.flow { name = "x" }
function flow.cache(c)
  c.heavy = sluice.cfill(0)
end
function flow.after(q, c, mass)
  c.heavy:save(c.heavy + mass:sum("token", "head"))
end
return flow
