-- LuKA's mixed mode (section 3.3): the first and the last layers are "lined", which keep a window and the tokens that had the most
-- attention (H2O); the layers between are "clustered": a summary for each page, and the three best are opened. Of the paper it keeps
-- both kinds, and which layers have which. Lined layers forget what leaves; the paper's keep it and leave it out.
local flow = sluice.flow {
  name = "luka_mixed", page = 16, prompt_mass = 64,
  layers = { [0] = "lined", [-1] = "lined", rest = "clustered" },
}

local lined = flow.variant("lined")

function lined.cache(c)
  c.heavy = sluice.cfill(0, { "token" })
end

function lined.after(q, c, mass)
  local heavy = c.heavy + mass:sum("head")
  c.heavy:save(heavy)
  sluice.evict(heavy, { budget = 680, first = 4, recent = 128, compress = "prompt" })
end

local clustered = flow.variant("clustered")

function clustered.cache(c)
  c.ksum = c.k:mean("token")
  c.vsum = c.v:mean("token")
end

function clustered.index(q, c)
  local mass = (q:dot(c.ksum) / math.sqrt(q:extent("dim"))):softmax("page"):mean("head")
  local older = mass:mask_slice("page", 0, -9, -math.huge)
  return sluice.cover { refine = sluice.topk(older, { k = 3 }), k = c.ksum, v = c.vsum, tail = 128 }
end

return flow
