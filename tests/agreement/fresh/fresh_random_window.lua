-- BigBird without global tokens but the first: chance and a window.
local flow = sluice.flow { name = "fresh_random_window", page = 16 }

function flow.index(q, c)
  return sluice.union(sluice.topk(sluice.random(), { ratio = 1 / 16 }), sluice.window { first = 1, last = 16 })
end

return flow
