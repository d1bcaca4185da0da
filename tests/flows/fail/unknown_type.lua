local flow = sluice.flow { name = "bad", kv = "fp16" }
return flow
