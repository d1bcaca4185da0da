local flow = sluice.flow { name = "bad" }
flow.pattern = sluice.pattern.window(64)
function flow.index(q, c)
  local kept = sluice.load("kept", { axes = { "page" }, init = 0 })
  local score = (q * c.k:mean("token")):sum("dim"):max("head") + kept
  sluice.save("kept", score)
  return sluice.topk(score, { k = 4, last = 1 })
end
return flow
