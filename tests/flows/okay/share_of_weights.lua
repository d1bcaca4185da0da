-- As many pages as have most of the weights that summaries give them.
local flow = sluice.flow { name = "share_of_weights" }

function flow.cache(c)
  c.m = c.k:mean("token")
end

function flow.index(q, c)
  local weight = (q:dot(c.m) / 8):softmax("page"):mean("head")
  return sluice.topp(weight, { p = 0.9, first = 1, last = 1, max = 64 })
end

return flow
