-- Diverse pages hold more information: the widest boxes, whatever the query.
local flow = sluice.flow { name = "held_box_width", page = 8, fields = { width = "f32" } }

function flow.cache(c)
  c.width = (c.k:max("token") - c.k:min("token")):mean("dim")
end

function flow.index(q, c)
  return sluice.topk(c.width, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
