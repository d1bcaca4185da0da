-- Who had the least attention of late leaves.
local flow = sluice.flow { name = "evict_lowest", prompt_mass = 16 }

function flow.cache(c)
  c.credit = sluice.cfill(0, { "token" })
end

function flow.after(q, c, mass)
  local credit = c.credit * 0.9 + mass:max("head")
  c.credit:save(credit)
  sluice.evict(credit, { budget = 256, first = 4, recent = 64, keep = sluice.pattern.dilated(8, 4) })
end

return flow
