-- What attention gave, by token and by head, as an after stage sees it: kept, weighed by the values, and drawn upon by chance.
local flow = sluice.flow { name = "masses", page = 16, prompt_mass = 64 }

function flow.cache(c)
  c.mean = c.k:mean("token")
  c.heavy = sluice.cfill(0)
  c.last = sluice.cfill(0, { "token" })
end

function flow.index(q, c)
  local steps = sluice.load("steps", { axes = { "head" }, init = 0 })
  local seen = sluice.load("seen", { axes = { "page" }, init = 1 })
  sluice.save("seen", seen * 0.5)
  local s = q:dot(c.mean):max("head") + c.heavy + c.last:max("token") * steps:mean("head") - seen
  return sluice.union(sluice.topk(s, { k = 4 }), sluice.window { first = 1, last = 1 })
end

function flow.after(q, c, mass)
  local by_page = mass:sum("token")                          -- [page, head]
  local norms = c.v:l2norm("dim")                            -- [page, token]
  c.heavy:save(0.9 * c.heavy + by_page:softmax("page"):max("head") + sluice.random() * 0.001)
  c.last:save((mass:mean("head") * norms):maximum(c.last * 0.5))
  sluice.save("steps", sluice.load("steps") + by_page:sum("page") + sluice.position():max("page") * 0.01)
end

return flow
