-- KeyDiff (Park et al. 2025): keys that resemble the average key leave, those that differ stay. No attention weights are needed:
-- only keys are read. Of the paper it keeps the score, the cosine to the mean of the keys' directions, and that prompts are
-- compressed block by block.
local flow = sluice.flow { name = "keydiff", page = 16 }

function flow.after(q, c, mass)
  local direction = c.k / (c.k:l2norm("dim") + 1e-6)
  local centre = direction:mean("token"):mean("page")
  sluice.evict(direction:dot(centre) * -1, { budget = 512, first = 4, recent = 32 })
end

return flow
