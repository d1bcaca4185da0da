-- One step of 2-means in every page: tokens are split along the direction of the outlier, and each side has its mean key
-- and its count. The page's mass is the log-sum-exp of both.
local flow = sluice.flow { name = "held_two_means", page = 16 }

function flow.cache(c)
  local centred = c.k - c.k:mean("token")
  local away = centred:l2norm("dim")
  local pick = sluice.where_ge(away, away:max("token") * 0.9999, 1, 0)
  local axis = (centred * pick):mean("token")
  local side = sluice.where_gt(centred:dot(axis), 0, 1, 0)
  local rest = 1 - side
  local share, others = side:mean("token") + 1e-4, rest:mean("token") + 1e-4
  c.a = (c.k * side):mean("token") / share
  c.b = (c.k * rest):mean("token") / others
  c.na = share:log()
  c.nb = others:log()
end

function flow.index(q, c)
  local scale = 1 / math.sqrt(q:extent("dim"))
  local a = q:dot(c.a) * scale + c.na
  local b = q:dot(c.b) * scale + c.nb
  local top = a:maximum(b)
  local mass = ((a - top):exp() + (b - top):exp()):log() + top
  return sluice.topk(mass:softmax("page"):sum("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
