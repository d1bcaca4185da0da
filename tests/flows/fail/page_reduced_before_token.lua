local flow = sluice.flow { name = "bad" }

function flow.cache(c)
  c.norm = c.k:l2norm("dim")
end

function flow.index(q, c)
  local s = q:dot(c.k):max("head")
  return sluice.topk(s:max("token") - s:mean("page", "token"), { k = 4 })
end

return flow
