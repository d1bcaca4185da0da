-- Chance that grows with the place of the page.
local flow = sluice.flow { name = "fresh_random_recent", page = 16 }

function flow.index(q, c)
  return sluice.topk(sluice.random() * sluice.position(), { ratio = 1 / 8, first = 1, last = 1 })
end

return flow
