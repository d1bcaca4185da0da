local flow = sluice.flow { name = "x" }
function flow.cache(c)
  c.heavy = sluice.cfill(0)
end
local score
function flow.index(q, c)
  score = c.heavy * 2
  return sluice.topk(score, { k = 3 })
end
function flow.after(q, c, mass)
  c.heavy:save(score + mass:sum("token", "head"))
end
return flow
