-- Mean keys, blurred over fifteen pages.
local flow = sluice.flow { name = "fresh_wide_blur", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local taps = {}
  for i = 1, 15 do taps[i] = 1 / 15 end
  return sluice.topk(q:mean("head"):dot(c.centroid):conv1d(taps), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
