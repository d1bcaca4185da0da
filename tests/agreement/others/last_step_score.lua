-- TOVA turned around: selects by the attention that the last step estimated, one step late.
local flow = sluice.flow { name = "last_step_score", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.before = sluice.cfill(0)
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  c.before:save((q:dot(c.centroid) * scale):softmax("page"):mean("head"))
  return sluice.topk(c.before:load(), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
