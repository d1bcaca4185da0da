-- Means of four tokens each; the best of a page, softmax over pages, sum of heads.
local flow = sluice.flow { name = "fresh_submean_p16", page = 16 }

function flow.cache(c)
  c.part = c.k:mean_interleave("token", 4)
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local s = (q:dot(c.part) * scale):max("sub")
  return sluice.topk(s:softmax("page"):sum("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
