local flow = sluice.flow { name = "x", prompt_mass = "last" }
return flow
