local flow = sluice.flow { name = "x" }
function flow.cache(c)
  c.heavy = sluice.cfill(0)
end
function flow.index(q, c)
  return sluice.topk(mass:sum("token", "head"), { k = 3 })
end
return flow
