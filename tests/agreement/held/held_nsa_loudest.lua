-- NSA's compressed attention, where the loudest head decides instead of the sum. Layer 0 spreads its attention: dense.
local flow = sluice.flow { name = "held_nsa_loudest", page = 16, layers = { [0] = "full", rest = "sparse" } }

function flow.cache(c)
  c.mu = c.k:mean("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local p = (q:dot(c.mu) * scale):softmax("page")
  return sluice.topk(p:max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
