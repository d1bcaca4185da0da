-- A page is scored once, by the first query that sees it, and never again: the index costs nothing later.
local flow = sluice.flow { name = "held_first_answers", page = 16 }

function flow.cache(c)
  c.mu = c.k:mean("token")
  c.kept = sluice.cfill(-1e30)
end

function flow.index(q, c)
  local fresh = q:mean("head"):dot(c.mu)
  local score = sluice.where_lt(c.kept, -1e29, fresh, c.kept)
  c.kept:save(score)
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
