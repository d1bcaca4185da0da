-- Double Sparsity's choice of channels with Quest's bound: only where |q| is well above its mean does the box count,
-- since the bounds of weak channels add up to noise.
local flow = sluice.flow { name = "held_heavy_channel_box", page = 8 }

function flow.cache(c)
  c.hi = c.k:max("token")
  c.lo = c.k:min("token")
end

function flow.index(q, c)
  local strength = q:abs()
  local heavy = sluice.where_ge(strength, 1.5 * strength:mean("dim"), q, 0)
  local bound = (heavy * c.hi):maximum(heavy * c.lo):sum("dim")
  return sluice.topk(bound:max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
