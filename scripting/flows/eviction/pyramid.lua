-- PyramidKV (Cai et al. 2024): the lower a layer, the more of the prompt it keeps, since attention narrows on the way up. Of the
-- paper it keeps that budgets fall from layer to layer, and SnapKV's votes of the last rows within each; it has three steps in place
-- of a straight line, and the average of a budget of 512.
local flow = sluice.flow {
  name = "pyramid", page = 16, prompt_mass = 32,
  layers = { [0] = "wide", [1] = "wide", [-2] = "narrow", [-1] = "narrow", rest = "middle" },
}

for _, step in ipairs({ { "wide", 768 }, { "middle", 512 }, { "narrow", 256 } }) do
  local layers = flow.variant(step[1])

  function layers.cache(c)
    c.vote = sluice.cfill(-1, { "token" })
  end

  function layers.after(q, c, mass)
    local vote = sluice.where_lt(c.vote, 0, mass:sum("head"), c.vote)
    c.vote:save(vote)
    sluice.evict(vote, { budget = step[2], recent = 32, compress = "prompt" })
  end
end

return flow
