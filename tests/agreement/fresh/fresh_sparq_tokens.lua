-- SparQ: every token's score from the query's strongest channels; the best token speaks for its page.
local flow = sluice.flow { name = "fresh_sparq_tokens", page = 16 }

function flow.index(q, c)
  local a = q:abs()
  local x = sluice.where_ge(a, 2 * a:mean("dim"), q, 0)
  local s = x:dot(c.k):max("token"):max("head")
  return sluice.topk(s, { ratio = 1 / 10, first = 1, last = 2 })
end

return flow
