-- A quarter of the resolution: four neighbouring channels become one, in keys and in the query.
local flow = sluice.flow { name = "fresh_pooled_channels", page = 16 }

function flow.cache(c)
  c.coarse = c.k:mean("token"):mean_interleave("dim", 4)
end

function flow.index(q, c)
  local n = q:extent("dim") // 4
  local x = q:reshape({ "head", { "sub", n }, { "dim", 4 } }):mean("dim")
  return sluice.topk(x:dot(c.coarse, "sub"):max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
