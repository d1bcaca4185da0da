-- Without a query: a fixed stride, every eighth page, whatever it holds.
local flow = sluice.flow { name = "every_eighth_page", page = 8 }

function flow.index(q, c)
  local rest = sluice.position()
  for bit = 13, 0, -1 do                            -- position modulo 8, by taking away 8 * 2^bit
    local step = 8 << bit
    rest = sluice.where_ge(rest, step, rest - step, rest)
  end
  return sluice.topk(sluice.where_eq(rest, 4, 1, 0), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
