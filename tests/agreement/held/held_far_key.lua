-- Beside the mean key, the key that lies farthest from it: needles are outliers of their page.
local flow = sluice.flow { name = "held_far_key", page = 8 }

function flow.cache(c)
  local mu = c.k:mean("token")
  local away = (c.k - mu):l2norm("dim")
  local pick = sluice.where_ge(away, away:max("token") * 0.9999, 1, 0)
  c.mu = mu
  c.far = (c.k * pick):mean("token") / pick:mean("token")
end

function flow.index(q, c)
  local score = q:dot(c.mu):maximum(q:dot(c.far))
  return sluice.topk(score:max("head"), { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
