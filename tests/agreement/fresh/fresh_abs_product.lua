-- Magnitudes on both sides: a bound on |qk| that has lost all signs.
local flow = sluice.flow { name = "fresh_abs_product", page = 8 }

function flow.cache(c)
  c.size = c.k:abs():max("token")
end

function flow.index(q, c)
  return sluice.topk(q:abs():dot(c.size):max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
