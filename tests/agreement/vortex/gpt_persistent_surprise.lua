-- Persistent surprise: a running mean (0.9) of |s - mean s| with s = q·centroid and the mean over the pages.
local flow = sluice.flow { name = "gpt_persistent_surprise", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
  c.credit = sluice.cfill(0)
end

function flow.index(q, c)
  local score = q:mean("head"):dot(c.centroid)
  local surprise = (score - score:mean("page")):abs()
  local credit = 0.9 * c.credit + 0.1 * surprise
  c.credit:save(credit)
  return sluice.topk(credit, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
