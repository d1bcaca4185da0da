-- Content of q: dense where the query is large, three pages where it is small; tasks and layers differ in that.
local flow = sluice.flow { name = "query_size", page = 8 }

function flow.index(q, c)
  local size = q:l2norm("dim"):max("head")
  return sluice.threshold(sluice.fill(0.5, { "page" }) - sluice.where_lt(size, 12, 1, 0), { above = 0, first = 1, last = 2 })
end

return flow
