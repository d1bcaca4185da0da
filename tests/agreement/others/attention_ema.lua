-- Estimated attention forgets with a half life of about seven steps; the page's running share decides.
local flow = sluice.flow { name = "attention_ema", page = 8 }

local keep = 0.9

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.share = sluice.cfill(0)
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local now = (q:dot(c.centroid) * scale):softmax("page"):mean("head")
  local share = keep * c.share + (1 - keep) * now
  c.share:save(share)
  return sluice.topk(share, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
