-- Every query head chooses pages of its own, an equal part of the budget each; no head can be outvoted.
local flow = sluice.flow { name = "held_own_pages", page = 8 }

function flow.cache(c)
  c.hi, c.lo = c.k:max("token"), c.k:min("token")
end

function flow.index(q, c)
  local heads = q:extent("head")
  local bound = (q * c.hi):maximum(q * c.lo):sum("dim")
  local chosen = {}
  for h = 0, heads - 1 do
    local mine = bound:mask_slice("head", h, h + 1, 0):sum("head")
    chosen[#chosen + 1] = sluice.topk(mine, { ratio = 1.2 / 8 / heads, first = 1, last = 2 })
  end
  return sluice.union(table.unpack(chosen))
end

return flow
