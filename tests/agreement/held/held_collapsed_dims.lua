-- One number a page: the average channel of query and mean key, multiplied. As cheap as it gets.
local flow = sluice.flow { name = "held_collapsed_dims", page = 16, fields = { level = "f32" } }

function flow.cache(c)
  c.level = c.k:mean("token", "dim")
end

function flow.index(q, c)
  return sluice.topk((q:mean("dim") * c.level):max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
