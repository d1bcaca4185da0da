-- As many pages as deserve it: those that get more than an even share of the estimated attention, at most 512 tokens.
local flow = sluice.flow { name = "held_above_uniform", page = 16 }

function flow.cache(c)
  c.parts = c.k:mean_interleave("token", 8)
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local p = (q:dot(c.parts):max("sub") * scale):softmax("page"):mean("head")
  return sluice.threshold(p, { above = p:mean("page"), first = 1, last = 2, max = 32 })
end

return flow
