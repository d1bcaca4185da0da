-- CacheBlend: of copied tokens, those whose keys and values differ most from what is computed here, in the layer `boundary`.
local share = sluice.parameter("share", 0.15)
local flow = sluice.flow {
  name = "cacheblend",
  page = sluice.parameter("page", 16),
  layers = { rest = "full" },
  recompute = { layer = sluice.parameter("boundary", 1) },
}

function flow.recompute(r)
  return sluice.topk_tokens((r.key_change + r.value_change):sum("head"), { ratio = share })
end

return flow
