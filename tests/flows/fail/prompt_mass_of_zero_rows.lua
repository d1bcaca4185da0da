local flow = sluice.flow { name = "x", prompt_mass = 0 }
return flow
