local flow = sluice.flow { name = "bad" }
flow.pattern = sluice.pattern.window(0)
return flow
