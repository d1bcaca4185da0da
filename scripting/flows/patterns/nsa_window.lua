-- Native Sparse Attention (Yuan et al. 2025) with its sliding window: the blocks that nsa_topk selects, and the last 512 tokens
-- beside them, whatever their scores.
local p = sluice.pattern
local flow = sluice.flow { name = "nsa_window", page = 8 }

function flow.cache(c)
  c.compressed = c.k:mean("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local importance = (q:dot(c.compressed) * scale):softmax("page"):sum("head")
  return sluice.union(sluice.topk(importance, { ratio = 1 / 16, first = 1 }), p.window(512))
end

return flow
