-- Only the channels in which the query is strong, with a bounding box in these.
local flow = sluice.flow { name = "fresh_heavy_box", page = 16 }

function flow.cache(c)
  c.hi = c.k:max("token")
  c.lo = c.k:min("token")
end

function flow.index(q, c)
  local a = q:abs()
  local x = sluice.where_ge(a, 1.5 * a:mean("dim"), q, 0)
  local s = (x * c.hi):maximum(x * c.lo):sum("dim"):max("head")
  return sluice.topk(s, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
