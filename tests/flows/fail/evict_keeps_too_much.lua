local flow = sluice.flow { name = "bad" }

function flow.after(q, c, mass)
  sluice.evict(mass:sum("head"), { budget = 1024, recent = 16, keep = sluice.pattern.window(6400) })
end

return flow
