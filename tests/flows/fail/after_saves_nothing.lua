local flow = sluice.flow { name = "x" }
function flow.cache(c)
  c.heavy = sluice.cfill(0)
end
function flow.index(q, c)
  c.heavy:save(c.heavy + 1)
  return sluice.topk(c.heavy, { k = 3 })
end
function flow.after(q, c, mass)
end
return flow
