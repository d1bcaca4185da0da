-- Parity of steps: dense at even ones, three pages at odd ones, in case only some steps are looked at.
local flow = sluice.flow { name = "every_other_step", page = 8 }

function flow.index(q, c)
  local odd = sluice.load("odd", { axes = {}, init = 0 })
  sluice.save("odd", 1 - odd)
  return sluice.threshold(sluice.fill(0.5, { "page" }) - odd, { above = 0, first = 1, last = 2 })
end

return flow
