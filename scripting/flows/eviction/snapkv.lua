-- SnapKV (Li et al. 2024): the last rows of a prompt vote for what is kept of it, by the weights that they give. Of the paper it
-- keeps the observation window, and that the prompt is computed whole before most of it leaves. The paper smooths votes over
-- neighbours and keeps every generated token; here a token keeps the vote of the rows that first saw it, and generated tokens
-- have their own: the budget holds for them, too.
local flow = sluice.flow { name = "snapkv", page = 16, prompt_mass = 32 }

function flow.cache(c)
  c.vote = sluice.cfill(-1, { "token" })
end

function flow.after(q, c, mass)
  local vote = sluice.where_lt(c.vote, 0, mass:sum("head"), c.vote)
  c.vote:save(vote)
  sluice.evict(vote, { budget = 512, recent = 32, compress = "prompt" })
end

return flow
