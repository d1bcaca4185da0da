-- LuKA, clustered attention (Fei et al. 2025): pages are summaries, of which the three that weigh most are opened. Of the paper it
-- keeps pages of 16, top-3 refinement and mass-preserving weights. A summary is the mean of its page; the paper's best compressor
-- weighs tokens by what they were attended to. One level of summaries, as in the paper's experiments.
local flow = sluice.flow { name = "luka", page = 16 }

function flow.cache(c)
  c.ksum = c.k:mean("token")
  c.vsum = c.v:mean("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local mass = (q:dot(c.ksum) * scale):softmax("page"):mean("head")
  -- The last nine pages have the tail of 128 tokens, which is no part of the cover.
  local older = mass:mask_slice("page", 0, -9, -math.huge)
  return sluice.cover { refine = sluice.topk(older, { k = 3 }), k = c.ksum, v = c.vsum, tail = 128 }
end

return flow
