-- An oracle: every key is scored exactly, and a page is worth its best token for its best head.
local flow = sluice.flow { name = "exact_token_max", page = 8 }

function flow.index(q, c)
  return sluice.topk(q:dot(c.k):max("token"):max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
