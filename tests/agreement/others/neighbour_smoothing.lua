-- The box bound of a page and a third of that of either neighbour: relevant text rarely ends where a page does.
local flow = sluice.flow { name = "neighbour_smoothing", page = 8 }

function flow.cache(c)
  c.hi, c.lo = c.k:max("token"), c.k:min("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local share = ((q * c.hi):maximum(q * c.lo):sum("dim") * scale):softmax("page"):sum("head")
  return sluice.topk(share:conv1d({ 0.33, 1, 0.33 }), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
