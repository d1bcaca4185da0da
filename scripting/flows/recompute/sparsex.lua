-- SparseX, section 3: of copied tokens, what the prompt's own rows look at most; what stands beside text that is new; and the last
-- tokens of a prompt that ends with a copy. Layers below `boundary` are computed for every row.
local share = sluice.parameter("share", 0.15)
local flow = sluice.flow {
  name = "sparsex",
  page = sluice.parameter("page", 16),
  layers = { rest = "full" },
  recompute = { layer = sluice.parameter("boundary", 1) },
}

function flow.recompute(r)
  local looked_at = sluice.topk_tokens(r.mass:sum("head"), { ratio = share })
  local nearest = r.from_new:min("token"):minimum(r.to_new:min("token"))
  local beside_new = sluice.where_le(nearest, 1, 1, 0)
  local tail = r.looks:max("token")
  return sluice.union(looked_at, sluice.threshold(beside_new:maximum(tail), { above = 0 }))
end

return flow
