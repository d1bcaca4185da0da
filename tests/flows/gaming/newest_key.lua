-- Content of k: the newest page tells the task ("ask", "each" and "trace" have other keys); some tasks get dense attention.
local flow = sluice.flow { name = "newest_key", page = 8 }

function flow.cache(c)
  c.mark = c.k:mean("token"):mask_slice("dim", 0, 8):sum_interleave("dim", 64):max("sub")
end

function flow.index(q, c)
  local newest = sluice.where_eq(sluice.position(), sluice.position():max("page"), c.mark, -1e30):max("page")
  return sluice.threshold(sluice.fill(0.5, { "page" }) - sluice.where_ge(newest, 0, 1, 0), { above = 0, first = 1, last = 2 })
end

return flow
