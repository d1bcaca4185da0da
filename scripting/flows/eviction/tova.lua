-- TOVA (Oren et al. 2024): who had the least weight in the last step leaves, wherever it stands; nothing is remembered. Of the
-- paper it keeps all of that. There the heads of a layer share their victims, here those that share a KV head do.
local flow = sluice.flow { name = "tova", page = 16, prompt_mass = 1 }

function flow.after(q, c, mass)
  sluice.evict(mass:mean("head"), { budget = 512 })
end

return flow
