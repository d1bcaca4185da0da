-- Boxes of eight tokens inside pages of 32; the best box speaks for its page.
local flow = sluice.flow { name = "fresh_subbox_p32", page = 32 }

function flow.cache(c)
  c.hi = c.k:max_interleave("token", 8)
  c.lo = c.k:min_interleave("token", 8)
end

function flow.index(q, c)
  local s = (q * c.hi):maximum(q * c.lo):sum("dim")
  return sluice.topk(s:max("sub"):max("head"), { ratio = 1 / 8, first = 1, last = 1 })
end

return flow
