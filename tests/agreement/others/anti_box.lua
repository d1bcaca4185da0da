-- Deliberately bad: the pages whose box promises least to the best head.
local flow = sluice.flow { name = "anti_box", page = 8 }

function flow.cache(c)
  c.hi, c.lo = c.k:max("token"), c.k:min("token")
end

function flow.index(q, c)
  local score = -(q * c.hi):maximum(q * c.lo):sum("dim"):max("head")
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
