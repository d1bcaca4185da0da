-- Dense first and last layer; boxes with few pages in the others.
local flow = sluice.flow { name = "fresh_box_edge_layers", page = 16, layers = { [0] = "full", [-1] = "full", rest = "sparse" } }

function flow.cache(c)
  c.hi = c.k:max("token")
  c.lo = c.k:min("token")
end

function flow.index(q, c)
  local s = (q * c.hi):maximum(q * c.lo):sum("dim"):mean("head")
  return sluice.topk(s, { ratio = 1 / 20, first = 1, last = 2 })
end

return flow
