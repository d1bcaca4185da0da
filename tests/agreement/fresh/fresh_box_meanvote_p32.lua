-- Bounding boxes of coarse pages, average of the heads' bounds.
local flow = sluice.flow { name = "fresh_box_meanvote_p32", page = 32 }

function flow.cache(c)
  c.hi = c.k:max("token")
  c.lo = c.k:min("token")
end

function flow.index(q, c)
  local s = (q * c.hi):maximum(q * c.lo):sum("dim"):mean("head")
  return sluice.topk(s, { ratio = 1 / 4, first = 1, last = 1 })
end

return flow
