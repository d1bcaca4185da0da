-- Sub-centroids of quarters of a page; the least aligned quarter counts. All five interleaved reductions.
local flow = sluice.flow { name = "multi_resolution", page = 16, fields = { norms = "f32" } }

function flow.cache(c)
  c.parts = c.k:mean_interleave("token", 4)
  c.tops = c.k:max_interleave("token", 8)
  c.bottoms = c.k:min_interleave("token", 8)
  c.norms = c.v:l2norm_interleave("dim", 16):mean("token")
  c.totals = c.k:sum_interleave("token", 4):l2norm("dim")
end

function flow.index(q, c)
  local route = q:mean("head")
  local agreement = route:dot(c.parts):min("sub")
  local spread = (c.tops - c.bottoms):mean("dim"):max("sub")
  return sluice.topk(agreement + 0.01 * spread + 0.1 * c.norms:sum("sub") + 0.001 * c.totals:max("sub"), { ratio = 1 / 4, last = 1 })
end

return flow
