-- Every eighth page. Adding and taking away 1.5 * 2^23 rounds to a whole number.
local flow = sluice.flow { name = "fresh_strided", page = 16 }

function flow.index(q, c)
  local x = sluice.position() / 8
  local off = (x - ((x + 12582912) - 12582912)):abs()
  return sluice.topk(-off, { ratio = 1 / 8, last = 1 })
end

return flow
