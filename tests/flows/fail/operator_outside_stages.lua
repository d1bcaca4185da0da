local score = sluice.position()
return sluice.flow { name = "bad", layers = { rest = "full" } }
