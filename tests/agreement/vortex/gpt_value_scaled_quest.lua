-- Value-scaled Quest: Σ |v| max(q hi, q lo), Quest's bound with each channel scaled by its value norm, and the best head's counts.
local flow = sluice.flow { name = "gpt_value_scaled_quest", page = 8 }

function flow.cache(c)
  c.hi = c.k:max("token")
  c.lo = c.k:min("token")
  c.weight = c.v:l2norm("token")
end

function flow.index(q, c)
  local bound = (q * c.hi):maximum(q * c.lo) * c.weight      -- [page, head, dim]
  local score = bound:sum("dim"):max("head")
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
