-- Mean keys shrink, so their attention is too flat: twice as sharp before the heads are added. Longer sinks and window.
local flow = sluice.flow { name = "held_sharp_votes", page = 8 }

function flow.cache(c)
  c.mu = c.k:mean("token")
end

function flow.index(q, c)
  local scale = 2 / math.sqrt(q:extent("dim"))
  local votes = (q:dot(c.mu) * scale):softmax("page"):sum("head")
  return sluice.topk(votes, { ratio = 1 / 8, first = 2, last = 4 })
end

return flow
