-- A bug on purpose: the lower channels of the query meet the upper ones of the mean key and the other way round.
local flow = sluice.flow { name = "swapped_halves", page = 8 }

local function halves(x, axes)
  local parts = x:reshape(axes)
  return parts:mask_slice("sub", 0, 1):sum("sub"), parts:mask_slice("sub", 1):sum("sub")
end

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local half = q:extent("dim") // 2
  local q0, q1 = halves(q, { "head", { "sub", 2 }, { "dim", half } })
  local k0, k1 = halves(c.centroid, { "page", { "sub", 2 }, { "dim", half } })
  return sluice.topk((q0:dot(k1) + q1:dot(k0)):max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
