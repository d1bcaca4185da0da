-- A triangular kernel along the pages damps isolated spikes; along channels and heads convolutions and softmax work too.
local flow = sluice.flow { name = "positional_smoothing", page = 16 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local smooth_query = q:conv1d({ 0.125, 0.75, 0.125 }, "dim")
  local per_head = smooth_query:dot(c.centroid)
  local weights = per_head:softmax("head")
  local score = (weights * per_head):sum("head"):conv1d({ 0.25, 0.5, 0.25 })
  return sluice.topk(score, { k = 6, first = 1, last = 2, method = "gvr" })
end

return flow
