-- Draws pages without replacement in proportion to the estimated attention, by Gumbel noise on the logits.
local flow = sluice.flow { name = "gumbel_sampling", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local u = sluice.random():maximum(1e-6)
  local gumbel = -(-(u:log())):maximum(1e-6):log()
  return sluice.topk((q:dot(c.centroid) * scale):max("head") + gumbel, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
