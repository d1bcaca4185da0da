local flow = sluice.flow { name = "bad" }
flow.pattern = sluice.pattern.sink(2 ^ 31)
return flow
