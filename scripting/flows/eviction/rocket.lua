-- Two stages, as RocketKV (Behnam et al. 2025) has them: at the end of a prompt most of it leaves for good, by the votes of its
-- last rows, and of what is left a step reads the pages that may matter to its query. Of the paper it keeps the two stages; the
-- second one is Quest's bound over pages of slots, whose summaries follow the tokens that move.
local flow = sluice.flow { name = "rocket", page = 16, prompt_mass = 32 }

function flow.cache(c)
  c.hi = c.k:max("token")
  c.lo = c.k:min("token")
  c.vote = sluice.cfill(-1, { "token" })
end

function flow.index(q, c)
  local score = (q * c.hi):maximum(q * c.lo):sum("dim"):max("head")
  return sluice.topk(score, { k = 29, first = 1, last = 2 })
end

function flow.after(q, c, mass)
  local vote = sluice.where_lt(c.vote, 0, mass:sum("head"), c.vote)
  c.vote:save(vote)
  sluice.evict(vote, { budget = 2048, recent = 64, compress = "prompt" })
end

return flow
