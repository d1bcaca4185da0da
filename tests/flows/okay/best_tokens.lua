-- Tokens by what the query makes of their keys, and the newest page.
local flow = sluice.flow { name = "best_tokens" }

function flow.index(q, c)
  local best = sluice.topk_tokens(q:dot(c.k):max("head"), { k = 40, first = 4, last = 8 })
  return sluice.union(best, sluice.window { last = 1 })
end

return flow
