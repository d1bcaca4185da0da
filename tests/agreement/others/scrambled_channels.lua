-- A bug on purpose: the mean key's channels are laid out in another order than the query's.
local flow = sluice.flow { name = "scrambled_channels", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local dim = q:extent("dim")
  local turned = c.centroid:reshape({ "page", { "sub", 8 }, { "dim", dim // 8 } }):transpose()
  local scrambled = turned:reshape({ "page", { "dim", dim } })
  return sluice.topk(q:dot(scrambled):max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
