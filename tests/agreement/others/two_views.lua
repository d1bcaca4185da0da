-- Two votes of a sixteenth each: the box for the best head, and mean keys for the heads' summed attention.
local flow = sluice.flow { name = "two_views", page = 8 }

function flow.cache(c)
  c.hi, c.lo = c.k:max("token"), c.k:min("token")
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local bound = (q * c.hi):maximum(q * c.lo):sum("dim"):max("head")
  local share = (q:dot(c.centroid) * scale):softmax("page"):sum("head")
  return sluice.union(sluice.topk(bound, { ratio = 1 / 16, first = 1, last = 2 }), sluice.topk(share, { ratio = 1 / 16 }))
end

return flow
