-- The best pages, and beside them the first tokens and the last, whatever their scores.
local p = sluice.pattern
local flow = sluice.flow { name = "topk_beside_window" }

function flow.cache(c)
  c.mean = c.k:mean("token")
end

function flow.index(q, c)
  return sluice.union(p.sink(4), sluice.topk(q:dot(c.mean):max("head"), { k = 8 }), p.window(100))
end

return flow
