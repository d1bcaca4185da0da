local flow = sluice.flow { name = "bad" }
flow.pattern = sluice.pattern.rect { stride = 0 }
return flow
