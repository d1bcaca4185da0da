-- RoPE turns the fast channels within a page, so that their mean cancels: a box for those, the mean for the slow ones.
local flow = sluice.flow { name = "held_split_bands", page = 16 }

local function halves(x, d)
  return x:reshape({ { "sub", 2 }, { "dim", d // 2 } })
end

function flow.cache(c)
  local d = c.k:extent("dim")
  c.hi = halves(c.k:max("token"), d)
  c.lo = halves(c.k:min("token"), d)
  c.mu = halves(c.k:mean("token"), d)
end

function flow.index(q, c)
  local d = q:extent("dim")
  local turned = q:reshape({ "head", { "sub", 2 }, { "dim", d // 2 } })
  local fast = turned:mask_slice("dim", 0, d // 8)
  local slow = turned:mask_slice("dim", d // 8)
  local bound = (fast * c.hi):maximum(fast * c.lo):sum("dim"):sum("sub")
  local level = slow:dot(c.mu):sum("sub")
  return sluice.topk((0.5 * bound + level):max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
