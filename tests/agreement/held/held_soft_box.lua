-- Between block means and Quest: the middle of the box, and half of what the box allows beyond it.
local flow = sluice.flow { name = "held_soft_box", page = 8 }

function flow.cache(c)
  local hi, lo = c.k:max("token"), c.k:min("token")
  c.middle = c.k:mean("token")
  c.half = (hi - lo) * 0.5
end

function flow.index(q, c)
  local score = q:dot(c.middle) + 0.5 * q:abs():dot(c.half)
  return sluice.topk(score:max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
