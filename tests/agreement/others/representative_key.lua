-- InfLLM-like: a page is represented by those of its keys that agree most with the page, weighted by a softmax in the page.
local flow = sluice.flow { name = "representative_key", page = 8 }

function flow.cache(c)
  local centroid = c.k:mean("token")
  local agreement = c.k:dot(centroid) * (1 / math.sqrt(c.k:extent("dim")))
  local weight = (agreement - agreement:max("token")):exp()
  local total = weight:dot(sluice.fill(1, { "token" }), "token")
  c.representative = sluice.dot(c.k, weight, "token") / total
end

function flow.index(q, c)
  return sluice.topk(q:dot(c.representative):max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
