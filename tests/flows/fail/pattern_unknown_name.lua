local flow = sluice.flow { name = "bad" }
flow.pattern = sluice.pattern.windw(64)
return flow
