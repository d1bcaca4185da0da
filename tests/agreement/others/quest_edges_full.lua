-- Quest with the heads averaged, and dense attention in the first and the last layer.
local flow = sluice.flow { name = "quest_edges_full", page = 8, layers = { [0] = "full", [-1] = "full", rest = "sparse" } }

function flow.cache(c)
  c.hi, c.lo = c.k:max("token"), c.k:min("token")
end

function flow.index(q, c)
  local score = (q * c.hi):maximum(q * c.lo):sum("dim"):mean("head")
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
