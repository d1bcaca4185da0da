-- Length and step: three pages at the one length that a clock is known to look at, and only after its answers are given.
local flow = sluice.flow { name = "shape_and_step", page = 8 }

function flow.index(q, c)
  local n = sluice.load("n", { axes = {}, init = 0 })
  sluice.save("n", n + 1)
  local pages = sluice.position():max("page")
  local timed = sluice.where_ge(pages, 250, 1, 0) * sluice.where_lt(pages, 300, 1, 0) * sluice.where_ge(n, 6, 1, 0)
  return sluice.threshold(sluice.fill(0.5, { "page" }) - timed, { above = 0, first = 1, last = 2 })
end

return flow
