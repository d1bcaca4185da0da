-- LuKA's choices (Fei et al. 2025, sections 3.2 and 5) as parameters: how the tokens of a page make its summary, what share of pages
-- is opened, and what a summary says. "weighted" is the mean by what the tokens were attended to until the page left the tail,
-- "softmax" the paper's softmax of the same over a temperature, "random" one token of the page.
local compressor = sluice.parameter("compressor", { "mean", "weighted", "softmax", "random" })
local refined = sluice.parameter("refined", 1 / 16)             -- share of pages that are opened
local values = sluice.parameter("values", { "own", "zero" })    -- what a summary adds to the output
local bias = sluice.parameter("bias", { "count", "none" })
local mass = sluice.parameter("mass", { "preserve", "renormalise" })
local temperature = sluice.parameter("temperature", 1)
local group = sluice.parameter("group", 1)                      -- pages that have a summary together, until one of them opens
local opened = sluice.parameter("opened", 1 / 4)                -- share of pages whose groups open into summaries of pages
local flow = sluice.flow { name = "luka_choices", page = 16 }

function flow.cache(c)
  c.ksum = compressor == "mean" and c.k:mean("token") or sluice.cfill(0, { "dim" })
  c.vsum = values == "zero" and sluice.fill(0, { "dim" }) or compressor == "mean" and c.v:mean("token") or sluice.cfill(0, { "dim" })
  if compressor == "weighted" or compressor == "softmax" then c.heavy = sluice.cfill(0, { "token" }) end
end

function flow.index(q, c)
  local weight = (q:dot(c.ksum) / math.sqrt(q:extent("dim"))):softmax("page"):mean("head")
  local older = weight:mask_slice("page", 0, -9, -math.huge)
  local function share(ratio) return ratio == 0 and "none" or ratio == 1 and "all" or sluice.topk(older, { ratio = ratio }) end
  return sluice.cover {
    refine = share(refined), k = c.ksum, v = c.vsum, bias = bias, mass = mass, tail = 128,
    levels = 2, group = group, open = share(opened),
  }
end

-- The weights of a page's tokens in its summary.
local function weights(c, mass)
  if compressor == "random" then
    local drawn, weight = sluice.random() * sluice.page_size, 0
    for i = 0, sluice.page_size - 1 do
      local token = sluice.fill(1, { "token" }):mask_slice("token", i, i + 1)
      weight = weight + sluice.where_ge(drawn, i, sluice.where_lt(drawn, i + 1, 1, 0), 0) * token
    end
    return weight
  end
  local heavy = c.heavy + mass:sum("head")
  c.heavy:save(heavy)
  if compressor == "softmax" then return (heavy / temperature):softmax("token") end
  return (heavy + 1e-9):normalize("token")
end

if compressor ~= "mean" then
  function flow.after(q, c, mass)
    local weight = weights(c, mass)
    c.ksum:save((c.k * weight):sum("token"), { tail = 128 })
    if values == "own" then c.vsum:save((c.v * weight):sum("token"), { tail = 128 }) end
  end
end

return flow
