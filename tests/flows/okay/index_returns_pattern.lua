-- Decode steps see the first tokens and the last; prompts are dense. The same as flow.pattern with prefill = "dense".
local p = sluice.pattern
local flow = sluice.flow { name = "index_returns_pattern" }

function flow.index(q, c)
  return sluice.union(p.sink(4), p.window(100))
end

return flow
