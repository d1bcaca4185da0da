-- Pages that resemble the newest page, in place of pages that answer the query.
local flow = sluice.flow { name = "fresh_like_newest", page = 16 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local p = sluice.position()
  local newest = sluice.where_eq(p, p:max("page"), 1, 0)
  local x = (newest * c.centroid):sum("page")
  return sluice.topk(x:dot(c.centroid), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
