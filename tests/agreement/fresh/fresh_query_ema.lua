-- A running mean of queries, so that the selection moves slowly.
local flow = sluice.flow { name = "fresh_query_ema", page = 16 }

function flow.cache(c)
  c.hi = c.k:max("token")
  c.lo = c.k:min("token")
end

function flow.index(q, c)
  local x = 0.5 * sluice.load("query", { axes = { "head", "dim" }, init = 0 }) + 0.5 * q
  sluice.save("query", x)
  local s = (x * c.hi):maximum(x * c.lo):sum("dim"):max("head")
  return sluice.topk(s, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
