-- Every head votes at every step for the pages above its average; votes fade slowly, the present attention breaks ties.
local flow = sluice.flow { name = "held_vote_counter", page = 16 }

function flow.cache(c)
  c.mu = c.k:mean("token")
  c.votes = sluice.cfill(0)
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local p = (q:dot(c.mu) * scale):softmax("page")
  local ballots = sluice.where_gt(p, 2 * p:mean("page"), 1, 0):sum("head")
  local votes = 0.8 * c.votes + ballots
  c.votes:save(votes)
  return sluice.topk(votes + p:sum("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
