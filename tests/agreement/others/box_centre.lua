-- Only the centre of the bounding box, without its width.
local flow = sluice.flow { name = "box_centre", page = 8 }

function flow.cache(c)
  c.centre = (c.k:max("token") + c.k:min("token")) * 0.5
end

function flow.index(q, c)
  return sluice.topk(q:dot(c.centre):max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
