local flow = sluice.flow { name = "bad" }

function flow.cache(c)
  c.seen = sluice.cfill(0)
end

function flow.index(q, c)
  c.seen:save(c.seen + 1)
  c.seen:save(c.seen + 2)
  return sluice.window { last = 4 }
end

return flow
