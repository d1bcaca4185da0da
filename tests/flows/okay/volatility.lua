-- Re-examines pages whose score fluctuates: running mean and second moment of the score as states.
local flow = sluice.flow { name = "volatility", page = 16 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.average = sluice.cfill(0)
  c.square = sluice.cfill(1)
end

function flow.index(q, c)
  local score = sluice.dot(q:max("head"), c.centroid, "dim")
  local average = 0.9 * c.average + 0.1 * score
  local square = 0.9 * c.square + 0.1 * score * score
  c.average:save(average)
  c.square:save(square)
  local variance = (square - average * average):relu()
  return sluice.topk(score + variance:sqrt(), { k = 3, first = 1, last = 2 })
end

return flow
