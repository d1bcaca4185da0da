-- Mean key scores standardised over the pages for each head, so that no head is louder than another; then the best.
local flow = sluice.flow { name = "head_zscore", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local x = q:dot(c.centroid)
  local centred = x - x:mean("page")
  local spread = (centred * centred):mean("page"):sqrt() + 1e-6
  return sluice.topk((centred / spread):max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
