-- A state without pages: the queries so far, the later ones the more.
local flow = sluice.flow { name = "smoothed_query", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local smoothed = 0.5 * sluice.load("query", { axes = { "head", "dim" }, init = 0 }) + q
  sluice.save("query", smoothed)
  return sluice.topk(smoothed:dot(c.centroid):max("head"), { k = 9, last = 1 })
end

return flow
