-- Quest over slots: heavy hitters are kept (h2o_tokens), and of these a step reads the pages whose bound is highest (quest). A page
-- is one of slots: tokens that move in take its summary along. It reads an eighth of a budget four times as large.
local flow = sluice.flow { name = "h2o_quest", page = 16, prompt_mass = "all" }

function flow.cache(c)
  c.hi = c.k:max("token")
  c.lo = c.k:min("token")
  c.heavy = sluice.cfill(0, { "token" })
end

function flow.index(q, c)
  local score = (q * c.hi):maximum(q * c.lo):sum("dim"):max("head")
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

function flow.after(q, c, mass)
  local heavy = c.heavy + mass:sum("head")
  c.heavy:save(heavy)
  sluice.evict(heavy, { budget = 2048, recent = 128 })
end

return flow
