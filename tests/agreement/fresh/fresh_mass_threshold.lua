-- As many pages as have more than twice an even share of attention, at most a fifth at 4096 tokens.
local flow = sluice.flow { name = "fresh_mass_threshold", page = 16 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local share = (q:dot(c.centroid) * scale):softmax("page"):max("head")
  return sluice.threshold(share, { above = 2 * share:mean("page"), first = 2, last = 8, max = 52 })
end

return flow
