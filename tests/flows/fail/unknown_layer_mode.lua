local flow = sluice.flow { name = "bad", layers = { [0] = "dense" } }
return flow
