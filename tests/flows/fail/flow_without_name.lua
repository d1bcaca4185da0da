local flow = sluice.flow { nam = "bad" }
return flow
