-- Three real keys stand for the page, found by farthest-first traversal; the mean key stands for the others.
local flow = sluice.flow { name = "held_three_leaders", page = 16 }

local function leader(k, distance)
  local pick = sluice.where_ge(distance, distance:max("token") * 0.9999, 1, 0)
  return (k * pick):mean("token") / pick:mean("token")
end

function flow.cache(c)
  local mu = c.k:mean("token")
  local one = leader(c.k, (c.k - mu):l2norm("dim"))
  local from_one = (c.k - one):l2norm("dim")
  local two = leader(c.k, from_one)
  local three = leader(c.k, from_one:minimum((c.k - two):l2norm("dim")))
  c.mu, c.one, c.two, c.three = mu, one, two, three
end

function flow.index(q, c)
  local score = q:dot(c.one):maximum(q:dot(c.two)):maximum(q:dot(c.three)):maximum(q:dot(c.mu))
  return sluice.topk(score:max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
