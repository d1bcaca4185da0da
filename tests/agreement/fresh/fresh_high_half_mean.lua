-- Mean keys over the second half of the channels, heads by softmax.
local flow = sluice.flow { name = "fresh_high_half_mean", page = 16 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local x = q:mask_slice("dim", q:extent("dim") // 2)
  return sluice.topk((x:dot(c.centroid) * scale):softmax("page"):sum("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
