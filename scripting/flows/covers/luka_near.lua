-- LuKA's cover with another rule (luka has the paper's): the pages that are opened are those of the keys that resemble the query
-- most, token by token, as 8 bits tell it; the mean of a page says too little where one token of it matters. Tokens enter the softmax
-- themselves, since a summary does not know what they weigh. It reads a quarter of K and V for the score, and summaries of the rest.
local flow = sluice.flow { name = "luka_near", page = 16, fields = { near = "e4m3" } }

function flow.cache(c)
  c.near = c.k
  c.ksum = c.k:mean("token")
  c.vsum = c.v:mean("token")
end

function flow.index(q, c)
  local score = c.near:dot(q):max("token", "head")
  local older = score:mask_slice("page", 0, -9, -math.huge)
  return sluice.cover {
    refine = sluice.topk(older, { k = 3 }), k = c.ksum, v = c.vsum, mass = "renormalise", tail = 128,
  }
end

return flow
