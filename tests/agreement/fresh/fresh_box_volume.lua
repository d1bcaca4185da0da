-- Pages whose keys differ most among themselves; a threshold with a cap, without the query.
local flow = sluice.flow { name = "fresh_box_volume", page = 8 }

function flow.cache(c)
  c.spread = (c.k:max("token") - c.k:min("token")):mean("dim")
end

function flow.index(q, c)
  return sluice.threshold(c.spread, { above = 1.1 * c.spread:mean("page"), first = 2, last = 16, max = 80 })
end

return flow
