-- Quest's bounding box asked once, with the mean of the group's queries.
local flow = sluice.flow { name = "quest_mean_query", page = 8 }

function flow.cache(c)
  c.hi, c.lo = c.k:max("token"), c.k:min("token")
end

function flow.index(q, c)
  local route = q:mean("head")
  return sluice.topk(sluice.where_ge(route, 0, c.hi, c.lo):dot(route), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
