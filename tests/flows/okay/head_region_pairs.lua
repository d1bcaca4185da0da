-- Pairs every head's strength with every region's (a Kronecker grid) and lets the best pair weigh the page.
local flow = sluice.flow { name = "head_region_pairs", page = 16 }

function flow.cache(c)
  c.regions = c.k:mean_interleave("token", 8)
end

function flow.index(q, c)
  local strength = q:l2norm("dim")
  local as_sub = strength:reshape({ { "sub", strength:extent("head") } })
  local pairs_of_both = sluice.kron(as_sub, c.regions:l2norm("dim"), "sub")
  local grid = q:dot(c.regions)
  local turned = grid:transpose():reshape({ "page", { "sub", grid:extent("head") * grid:extent("sub") } })
  return sluice.topk((pairs_of_both + turned):max("sub"), { k = 4, first = 1, last = 2 })
end

return flow
