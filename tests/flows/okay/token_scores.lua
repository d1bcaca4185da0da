-- No cached field: every token of every page is scored, which is dear and exact. The page's best token counts.
local flow = sluice.flow { name = "token_scores", page = 16 }

function flow.index(q, c)
  local scores = q:dot(c.k):max("head") * c.v:l2norm("dim")
  return sluice.topk(scores:max("token"), { k = 6, last = 1 })
end

return flow
