-- Length: dense where there are few pages, as in a first stage with a threshold, and three pages where the context is long.
local flow = sluice.flow { name = "dense_when_short", page = 8 }

function flow.index(q, c)
  local pages = sluice.position():max("page")
  return sluice.threshold(sluice.fill(1, { "page" }) - sluice.where_ge(pages, 200, 2, 0), { above = 0, first = 1, last = 2 })
end

return flow
