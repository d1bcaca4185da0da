-- Heavy hitters (H2O, Zhang et al. 2023), by token: half of the budget goes to the newest tokens, the other half to those that had
-- the most attention so far. What leaves is forgotten, and its memory goes to the next token. Of the paper it keeps the score
-- (weights summed over all rows of the prompt and all steps), the halves, and that tokens leave one by one; query heads that share
-- a KV head share their victims, and prompts are compressed chunk by chunk.
local flow = sluice.flow { name = "h2o_tokens", page = 16, prompt_mass = "all" }

function flow.cache(c)
  c.heavy = sluice.cfill(0, { "token" })
end

function flow.after(q, c, mass)
  local heavy = c.heavy + mass:sum("head")
  c.heavy:save(heavy)
  sluice.evict(heavy, { budget = 512, recent = 256 })
end

return flow
