-- Control: Quest with the query's channels in another order than the keys'.
local flow = sluice.flow { name = "held_swapped_channels", page = 8 }

function flow.cache(c)
  c.hi, c.lo = c.k:max("token"), c.k:min("token")
end

function flow.index(q, c)
  local d = q:extent("dim")
  local mixed = q:reshape({ "head", { "sub", 8 }, { "dim", d // 8 } }):transpose():reshape({ "head", { "dim", d } })
  local bound = (mixed * c.hi):maximum(mixed * c.lo):sum("dim"):max("head")
  return sluice.topk(bound, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
