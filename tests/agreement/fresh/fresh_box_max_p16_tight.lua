-- Bounding boxes with a sixteenth of the pages.
local flow = sluice.flow { name = "fresh_box_max_p16_tight", page = 16 }

function flow.cache(c)
  c.hi = c.k:max("token")
  c.lo = c.k:min("token")
end

function flow.index(q, c)
  local s = (q * c.hi):maximum(q * c.lo):sum("dim"):max("head")
  return sluice.topk(s, { ratio = 1 / 16, first = 1, last = 2 })
end

return flow
