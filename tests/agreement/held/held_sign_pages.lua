-- One bit a key: the average sign of each channel, scaled by the page's average magnitude in it. Fixed budget.
local flow = sluice.flow { name = "held_sign_pages", page = 16, fields = { code = "e4m3" } }

function flow.cache(c)
  c.code = sluice.where_gt(c.k, 0, 1, -1):mean("token") * c.k:abs():mean("token")
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local p = (q:dot(c.code) * scale):softmax("page")
  return sluice.topk(p:sum("head"), { k = 29, first = 1, last = 2 })
end

return flow
