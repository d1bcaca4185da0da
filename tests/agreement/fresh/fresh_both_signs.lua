-- Signs on both sides: counts the channels in which query and mean key agree.
local flow = sluice.flow { name = "fresh_both_signs", page = 8 }

function flow.cache(c)
  c.sign = sluice.where_ge(c.k:mean("token"), 0, 1, -1)
end

function flow.index(q, c)
  local x = sluice.where_ge(q, 0, 1, -1)
  return sluice.topk(x:dot(c.sign):mean("head"), { ratio = 1 / 6, first = 1, last = 2 })
end

return flow
