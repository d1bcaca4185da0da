-- The highest share that a page had lately, from box bounds.
local flow = sluice.flow { name = "fresh_credit_peak", page = 16 }

function flow.cache(c)
  c.hi = c.k:max("token")
  c.lo = c.k:min("token")
  c.peak = sluice.cfill(0)
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local now = ((q * c.hi):maximum(q * c.lo):sum("dim") * scale):softmax("page"):max("head")
  local peak = now:maximum(0.7 * c.peak)
  c.peak:save(peak)
  return sluice.topk(peak, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
