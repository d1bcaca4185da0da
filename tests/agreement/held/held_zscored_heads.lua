-- Heads differ in the scale of their scores. Each is centred and divided by its spread over the pages; the best counts.
local flow = sluice.flow { name = "held_zscored_heads", page = 16 }

function flow.cache(c)
  c.parts = c.k:mean_interleave("token", 8)
end

function flow.index(q, c)
  local s = q:dot(c.parts):max("sub")
  local centred = s - s:mean("page")
  local z = centred / (centred:l2norm("page") + 1e-3)
  return sluice.topk(z:max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
