-- Value-only energy: the mean norm of the page's values, whatever query and keys are.
local flow = sluice.flow { name = "gpt_value_only_energy", page = 8 }

function flow.cache(c)
  c.energy = c.v:l2norm("dim"):mean("token")
end

function flow.index(q, c)
  return sluice.topk(c.energy, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
