local flow = sluice.flow { name = "bad", page = 24 }
return flow
