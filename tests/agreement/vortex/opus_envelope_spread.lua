-- Envelope spread: Σ |q| (hi - lo), how wide the keys of the page spread over the channels that the query uses.
local flow = sluice.flow { name = "opus_envelope_spread", page = 8 }

function flow.cache(c)
  c.hi = c.k:max("token")
  c.lo = c.k:min("token")
end

function flow.index(q, c)
  local score = q:mean("head"):abs():dot(c.hi - c.lo)
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
