-- The control: as many pages as the others read, chosen by chance. A task that this flow solves needs no attention.
local flow = sluice.flow { name = "random", page = 16 }

function flow.index(q, c)
  return sluice.topk(sluice.random(), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
