-- The best pages of the last 1000 tokens: the pattern bounds what is selected.
local flow = sluice.flow { name = "topk_under_window", prefill = "dense" }

flow.pattern = sluice.pattern.window(1000)

function flow.cache(c)
  c.mean = c.k:mean("token")
end

function flow.index(q, c)
  return sluice.topk(q:dot(c.mean):max("head"), { k = 8, last = 1 })
end

return flow
