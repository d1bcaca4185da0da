-- A box of half optimism with a fixed budget of 64 pages, which does not grow with the context.
local flow = sluice.flow { name = "box_fixed_k", page = 8 }

function flow.cache(c)
  local hi, lo = c.k:max("token"), c.k:min("token")
  c.centre, c.radius = (hi + lo) * 0.5, (hi - lo) * 0.5
end

function flow.index(q, c)
  local score = (q:dot(c.centre) + 0.5 * q:abs():dot(c.radius)):mean("head")
  return sluice.topk(score, { k = 64, first = 1, last = 4 })
end

return flow
