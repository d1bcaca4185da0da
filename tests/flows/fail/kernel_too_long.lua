local flow = sluice.flow { name = "bad" }
function flow.index(q, c)
  local taps = {}
  for i = 1, 131 do taps[i] = 1 end
  return sluice.topk(sluice.position():conv1d(taps), { k = 4 })
end
return flow
