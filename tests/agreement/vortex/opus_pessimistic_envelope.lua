-- Pessimistic envelope: Quest turned round, Σ min(q hi, q lo), which no key of the page can fall below.
local flow = sluice.flow { name = "opus_pessimistic_envelope", page = 8 }

function flow.cache(c)
  c.hi = c.k:max("token")
  c.lo = c.k:min("token")
end

function flow.index(q, c)
  local route = q:mean("head")
  local score = (route * c.hi):minimum(route * c.lo):sum("dim")
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
