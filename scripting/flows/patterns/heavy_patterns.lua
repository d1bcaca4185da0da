-- SAS's dynamic component (section 4.1): each static pattern of its Table 1 alone, with the 512 tokens beside it that had the
-- most attention so far, or keeping those and forgetting all others. The last wants a pattern whose tokens do not grow in number.
local which = sluice.parameter("pattern", {
  "sink_window", "sliding_window", "block_local", "strided", "fixed", "strided_block_local",
})
local hitters = sluice.parameter("hitters", { "none", "read", "keep" })
local p = sluice.pattern
local patterns = {
  sink_window = p.sink(32) | p.window(1024),
  sliding_window = p.window(1024),
  block_local = p.blocks(128, 3),
  strided = p.strided(512, 512),
  fixed = p.fixed(256),
  strided_block_local = p.rect { size = 256, stride = 4 } >> p.diag { size = 1 },
}
-- Tokens that a later query sees, whatever the length.
local live = { sink_window = 1056, sliding_window = 1024, block_local = 384, strided_block_local = 64 }
local flow = sluice.flow { name = "heavy_patterns", page = 16, prompt_mass = hitters ~= "none" and "all" or nil }

if hitters == "none" then
  flow.pattern = patterns[which]
  return flow
end
if hitters == "keep" and not live[which] then error(which .. " keeps more the longer the text") end

function flow.cache(c)
  c.heavy = sluice.cfill(0, { "token" })
end

if hitters == "read" then
  function flow.index(q, c)
    return sluice.union(sluice.topk_tokens(c.heavy, { k = 512 }), patterns[which])
  end
end

function flow.after(q, c, mass)
  local heavy = c.heavy + mass:sum("head")
  c.heavy:save(heavy)
  -- The pattern's tokens, 512 others, and 256 for a chunk of a prompt.
  if hitters == "keep" then sluice.evict(heavy, { budget = live[which] + 768, keep = patterns[which] }) end
end

return flow
