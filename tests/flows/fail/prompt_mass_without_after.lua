local flow = sluice.flow { name = "x", prompt_mass = 64 }
function flow.index(q, c)
  return sluice.window { last = 4 }
end
return flow
