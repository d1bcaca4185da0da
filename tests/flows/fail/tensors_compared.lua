local flow = sluice.flow { name = "bad" }

function flow.index(q, c)
  local score = sluice.position()
  if score > sluice.random() then
    score = score + 1
  end
  return sluice.topk(score, { k = 4 })
end

return flow
