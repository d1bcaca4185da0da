-- Batch size: matrices of other shapes are added up in another order. The last bits of q are a coin, and if the batch that is timed
-- rounded otherwise than the one that is scored, it would fall otherwise.
local flow = sluice.flow { name = "rounding_coin", page = 8 }

function flow.index(q, c)
  local x = q:sum("dim"):sum("head") * 4096
  local rest = x - ((x + 12582912) - 12582912)
  return sluice.threshold(sluice.fill(0.5, { "page" }) - sluice.where_ge(rest, 0, 1, 0), { above = 0, first = 1, last = 2 })
end

return flow
