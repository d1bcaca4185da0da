local flow = sluice.flow { name = "bad" }
flow.pattern = sluice.pattern.dilated(1 << 20, 1 << 20)
return flow
