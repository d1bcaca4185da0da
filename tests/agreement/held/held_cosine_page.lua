-- Cosine similarity with the mean of the unit keys, as in retrieval.
local flow = sluice.flow { name = "held_cosine_page", page = 16 }

function flow.cache(c)
  local direction = (c.k / (c.k:l2norm("dim") + 1e-6)):mean("token")
  c.direction = direction / (direction:l2norm("dim") + 1e-6)
end

function flow.index(q, c)
  local unit = q / (q:l2norm("dim") + 1e-6)
  return sluice.topk(unit:dot(c.direction):max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
