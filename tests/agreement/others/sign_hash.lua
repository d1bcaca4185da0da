-- Only the signs of the mean key's channels are kept; the query keeps its magnitudes.
local flow = sluice.flow { name = "sign_hash", page = 8, fields = { sign = "e4m3" } }

function flow.cache(c)
  c.sign = sluice.where_ge(c.k:mean("token"), 0, 1, -1)
end

function flow.index(q, c)
  return sluice.topk(q:dot(c.sign):max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
