-- A softer envelope: the root mean square of the positive and of the negative parts instead of the extremes.
local flow = sluice.flow { name = "held_rms_box", page = 8 }

function flow.cache(c)
  local n = 1 / math.sqrt(sluice.page_size)
  c.above = c.k:relu():l2norm("token") * n
  c.below = (-c.k):relu():l2norm("token") * -n
end

function flow.index(q, c)
  local score = (q * c.above):maximum(q * c.below):sum("dim")
  return sluice.topk(score:max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
