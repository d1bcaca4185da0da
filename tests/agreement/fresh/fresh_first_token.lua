-- A page is what its first key is.
local flow = sluice.flow { name = "fresh_first_token", page = 16 }

function flow.cache(c)
  c.head_key = c.k:mask_slice("token", 0, 1):mean("token")
end

function flow.index(q, c)
  return sluice.topk(q:dot(c.head_key):max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
