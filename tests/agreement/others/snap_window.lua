-- SnapKV-like: attention of the last few steps, pooled over five neighbouring pages.
local flow = sluice.flow { name = "snap_window", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.recent = sluice.cfill(0)
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local recent = 0.75 * c.recent + (q:dot(c.centroid) * scale):softmax("page"):sum("head")
  c.recent:save(recent)
  return sluice.topk(recent:conv1d({ 0.1, 0.2, 0.4, 0.2, 0.1 }), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
