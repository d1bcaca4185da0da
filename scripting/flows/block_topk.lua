-- Block top-k (InfLLM, MoBA; Vortex, section 3.1): a page is as relevant as its mean key.
local flow = sluice.flow { name = "block_topk", page = 16 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local score = q:mean("head"):dot(c.centroid)
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
