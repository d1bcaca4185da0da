-- Double Sparsity (Yang et al. 2024): score with the few channels that carry most of the product, by page.
-- The query says which channels are heavy: those where |q| is at least its mean. Of the others nothing is read into the
-- score. A page is labelled by the value of largest magnitude that each channel takes in it, with its sign.
local flow = sluice.flow { name = "double_sparse", page = 8 }

function flow.cache(c)
  local high, low = c.k:max("token"), c.k:min("token")
  c.label = sluice.where_ge(high, -low, high, low)
end

function flow.index(q, c)
  local strength = q:abs()
  local heavy = sluice.where_ge(strength, strength:mean("dim"), q, 0)
  local score = heavy:dot(c.label):max("head")
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
