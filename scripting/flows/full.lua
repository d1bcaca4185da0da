-- Dense attention in every layer: the yardstick.
return sluice.flow { name = "full", layers = { rest = "full" } }
