-- The first key of a page stands for all of it: sampling instead of pooling.
local flow = sluice.flow { name = "held_first_key", page = 8 }

function flow.cache(c)
  c.sample = c.k:mask_slice("token", 0, 1):mean("token") * sluice.page_size
end

function flow.index(q, c)
  return sluice.topk(q:dot(c.sample):max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
