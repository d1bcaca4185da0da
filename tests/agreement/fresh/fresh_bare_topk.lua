-- Centre of the box, neither sink nor window: even the newest page has to compete.
local flow = sluice.flow { name = "fresh_bare_topk", page = 32 }

function flow.cache(c)
  c.mid = 0.5 * (c.k:max("token") + c.k:min("token"))
end

function flow.index(q, c)
  return sluice.topk(q:dot(c.mid):max("head"), { ratio = 1 / 8 })
end

return flow
