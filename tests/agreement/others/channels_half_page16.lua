-- The box by the upper half of the channels alone, at half the reads; three sixteenths of the pages.
local flow = sluice.flow { name = "channels_half_page16", page = 16 }

function flow.cache(c)
  c.hi, c.lo = c.k:max("token"), c.k:min("token")
end

function flow.index(q, c)
  local upper = q:mask_slice("dim", q:extent("dim") // 2)
  local score = (upper * c.hi):maximum(upper * c.lo):sum("dim"):max("head")
  return sluice.topk(score, { ratio = 3 / 16, first = 1, last = 2 })
end

return flow
