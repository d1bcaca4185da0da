-- Every sixteenth page and a window.
local flow = sluice.flow { name = "fresh_strided_window", page = 8 }

function flow.index(q, c)
  local x = sluice.position() / 16
  local off = (x - ((x + 12582912) - 12582912)):abs()
  return sluice.union(sluice.topk(-off, { ratio = 1 / 16 }), sluice.window { first = 1, last = 32 })
end

return flow
