-- Pages of 32 with four boxes of eight keys: long contiguous reads, fine bounds. Heads by their share of attention.
local flow = sluice.flow { name = "held_box_quarters", page = 32 }

function flow.cache(c)
  c.hi = c.k:max_interleave("token", 8)
  c.lo = c.k:min_interleave("token", 8)
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local bound = (q * c.hi):maximum(q * c.lo):sum("dim"):max("sub") * scale
  return sluice.topk(bound:softmax("page"):sum("head"), { ratio = 1 / 8, first = 1, last = 1 })
end

return flow
