-- Every channel's contribution passes through a sigmoid, so that none dominates; a silu and a relu view beside it.
local flow = sluice.flow { name = "saturated_features", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local products = q:mean("head") * c.centroid
  local score = products:sigmoid():sum("dim") + products:silu():mean("dim") + products:relu():max("dim")
  return sluice.topk(score, { k = 9, last = 2 })
end

return flow
