local flow = sluice.flow { name = "x" }

function flow.index(q, c)
  local score = sluice.position()
  for i = 1, 60 do
    local state = sluice.load("s" .. i, { axes = { "page", { "sub", 512 } }, init = i })
    sluice.save("s" .. i, state)
    score = score + state:max("sub")
  end
  return sluice.topk(score, { k = 1 })
end

return flow
