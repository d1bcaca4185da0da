-- Block selection of Native Sparse Attention (Yuan et al. 2025), on compressed keys: every head spreads one unit of attention
-- over the pages, and the heads that share a KV head add theirs up, since they must share the pages too.
local flow = sluice.flow { name = "nsa_topk", page = 8 }

function flow.cache(c)
  c.compressed = c.k:mean("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local importance = (q:dot(c.compressed) * scale):softmax("page"):sum("head")
  return sluice.topk(importance, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
