-- Two-timescale agreement: the smaller of a fast (0.5) and a slow (0.95) running mean of q·centroid.
local flow = sluice.flow { name = "sonnet_two_timescale_agreement", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.fast = sluice.cfill(0)
  c.slow = sluice.cfill(0)
end

function flow.index(q, c)
  local score = q:mean("head"):dot(c.centroid)
  local fast = 0.5 * c.fast + 0.5 * score
  local slow = 0.95 * c.slow + 0.05 * score
  c.fast:save(fast)
  c.slow:save(slow)
  return sluice.topk(fast:minimum(slow), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
