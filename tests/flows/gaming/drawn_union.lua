-- Union with a drawn part: pages of an approximate selection, of which the judge compares nothing, stand beside a small window.
local flow = sluice.flow { name = "drawn_union", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local score = q:mean("head"):dot(c.centroid)
  local drawn = sluice.approx_topk(score, { ratio = 1 / 4, tolerate = 0.9 })
  return sluice.union(drawn, sluice.window { first = 1, last = 2 })
end

return flow
