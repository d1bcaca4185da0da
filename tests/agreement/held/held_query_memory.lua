-- The queries of the last steps still matter: a page counts by the better of the present query and the running one.
local flow = sluice.flow { name = "held_query_memory", page = 16 }

function flow.cache(c)
  c.hi, c.lo = c.k:max("token"), c.k:min("token")
end

function flow.index(q, c)
  local memory = sluice.load("memory", { axes = { "head", "dim" }, init = 0 })
  sluice.save("memory", 0.6 * memory + 0.4 * q)
  local now = (q * c.hi):maximum(q * c.lo):sum("dim"):max("head")
  local before = (memory * c.hi):maximum(memory * c.lo):sum("dim"):max("head")
  return sluice.topk(now:maximum(0.8 * before), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
