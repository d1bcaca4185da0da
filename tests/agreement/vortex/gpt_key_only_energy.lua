-- Key-only energy: the mean norm of the page's keys, whatever query and values are.
local flow = sluice.flow { name = "gpt_key_only_energy", page = 8 }

function flow.cache(c)
  c.energy = c.k:l2norm("dim"):mean("token")
end

function flow.index(q, c)
  return sluice.topk(c.energy, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
