-- The whole page and its halves, in one score; the halves are reshaped into channels of one vector and back.
local flow = sluice.flow { name = "coarse_fine", page = 16 }

function flow.cache(c)
  c.whole = c.k:mean("token")
  local halves = c.k:mean_interleave("token", 8)
  c.halves = halves:reshape({ { "dim", 2 * halves:extent("dim") } })
end

function flow.index(q, c)
  local route = q:mean("head")
  local dim = route:extent("dim")
  local halves = c.halves:reshape({ "page", { "sub", 2 }, { "dim", dim } })
  local fine = route:dot(halves):max("sub")
  return sluice.topk(route:dot(c.whole) + fine, { k = 5, first = 1, last = 2 })
end

return flow
