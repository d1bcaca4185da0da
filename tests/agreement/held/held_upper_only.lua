-- Max-pooled keys, as in max-pooling over a page: half the fields of Quest.
local flow = sluice.flow { name = "held_upper_only", page = 16 }

function flow.cache(c)
  c.hi = c.k:max("token")
end

function flow.index(q, c)
  return sluice.topk(q:dot(c.hi):max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
