-- Box bound, softmax, then three taps over neighbouring pages.
local flow = sluice.flow { name = "fresh_box_smooth3", page = 8 }

function flow.cache(c)
  c.hi = c.k:max("token")
  c.lo = c.k:min("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local s = ((q * c.hi):maximum(q * c.lo):sum("dim") * scale):softmax("page"):sum("head")
  return sluice.topk(s:conv1d({ 0.25, 0.5, 0.25 }), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
