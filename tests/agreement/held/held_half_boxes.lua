-- Two boxes a page, one for each half: tighter than one box around sixteen keys, the same cost as pages of eight.
local flow = sluice.flow { name = "held_half_boxes", page = 16 }

function flow.cache(c)
  c.hi = c.k:max_interleave("token", 8)
  c.lo = c.k:min_interleave("token", 8)
end

function flow.index(q, c)
  local bound = (q * c.hi):maximum(q * c.lo):sum("dim")
  return sluice.topk(bound:max("sub"):max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
