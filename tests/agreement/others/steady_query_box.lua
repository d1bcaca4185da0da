-- Quest asked by a running mean of the queries instead of the present one alone.
local flow = sluice.flow { name = "steady_query_box", page = 8 }

function flow.cache(c)
  c.hi, c.lo = c.k:max("token"), c.k:min("token")
end

function flow.index(q, c)
  local steady = 0.6 * q + 0.4 * sluice.load("query", { axes = { "head", "dim" }, init = 0 })
  sluice.save("query", steady)
  local score = (steady * c.hi):maximum(steady * c.lo):sum("dim"):max("head")
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
