local flow = sluice.flow { name = "bad", prefill = "sparse" }
flow.pattern = sluice.pattern.window(64)
return flow
