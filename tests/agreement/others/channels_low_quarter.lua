-- Scores mean keys by a quarter of the channels, those at the end of each half, which RoPE turns slowest.
local flow = sluice.flow { name = "channels_low_quarter", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local dim = q:extent("dim")
  local half, eighth = dim // 2, dim // 8
  local slow = q:mask_slice("dim", half - eighth, half) + q:mask_slice("dim", dim - eighth, dim)
  return sluice.topk(slow:dot(c.centroid):max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
