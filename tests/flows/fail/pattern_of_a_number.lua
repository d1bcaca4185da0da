local flow = sluice.flow { name = "bad" }
flow.pattern = 512
return flow
