-- Chance, a third of the pages.
local flow = sluice.flow { name = "fresh_random_third", page = 8 }

function flow.index(q, c)
  return sluice.topk(sluice.random(), { ratio = 1 / 3, first = 1, last = 2 })
end

return flow
