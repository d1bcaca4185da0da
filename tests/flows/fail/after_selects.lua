local flow = sluice.flow { name = "x" }
function flow.cache(c)
  c.heavy = sluice.cfill(0)
end
function flow.index(q, c)
  return sluice.topk(c.heavy, { k = 3 })
end
function flow.after(q, c, mass)
  c.heavy:save(mass:sum("token", "head"))
  return sluice.topk(c.heavy, { k = 3 })
end
return flow
