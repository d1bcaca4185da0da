-- Query-weighted spread: Quest's bound Σ max(q hi, q lo) for each half of the page, and the larger of the two.
local flow = sluice.flow { name = "sonnet_query_weighted_spread", page = 8 }

function flow.cache(c)
  c.hi = c.k:max_interleave("token", 4)
  c.lo = c.k:min_interleave("token", 4)
end

function flow.index(q, c)
  local route = q:mean("head")
  local bound = (route * c.hi):maximum(route * c.lo):sum("dim")   -- [page, sub]
  return sluice.topk(bound:max("sub"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
