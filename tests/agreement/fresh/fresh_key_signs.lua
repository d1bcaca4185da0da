-- Only the signs of keys, averaged over the page.
local flow = sluice.flow { name = "fresh_key_signs", page = 16 }

function flow.cache(c)
  c.sign = sluice.where_ge(c.k, 0, 1, -1):mean("token")
end

function flow.index(q, c)
  return sluice.topk(q:dot(c.sign):max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
