-- Four mean keys a page; the best quarter speaks for the page, the most convinced head decides.
local flow = sluice.flow { name = "held_quarter_means", page = 16 }

function flow.cache(c)
  c.parts = c.k:mean_interleave("token", 4)
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local best = q:dot(c.parts):max("sub") * scale
  return sluice.topk(best:softmax("page"):max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
