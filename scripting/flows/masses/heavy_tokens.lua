-- Heavy hitters by token, with refresh (SAS, section 4.1; H2O): each step reads the tokens that had the most attention so far, and
-- the newest. Nothing leaves: a token that was left out comes back once others do not outweigh it. h2o_tokens is the same rule with
-- eviction.
local flow = sluice.flow { name = "heavy_tokens", page = 16, prompt_mass = "all" }

function flow.cache(c)
  c.heavy = sluice.cfill(0, { "token" })
end

function flow.index(q, c)
  return sluice.topk_tokens(c.heavy, { k = 256, last = 256 })
end

function flow.after(q, c, mass)
  c.heavy:save(c.heavy + mass:sum("head"))
end

return flow
