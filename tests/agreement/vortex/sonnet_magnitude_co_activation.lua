-- Magnitude co-activation: |q|·mean |k|, where the same channels are strong, of either sign.
local flow = sluice.flow { name = "sonnet_magnitude_co_activation", page = 8 }

function flow.cache(c)
  c.magnitude = c.k:abs():mean("token")
end

function flow.index(q, c)
  local score = q:mean("head"):abs():dot(c.magnitude)
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
