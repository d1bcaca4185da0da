-- Value energy as a temperature of each channel; a page with little value is asked for more alignment.
local flow = sluice.flow { name = "value_temperature", page = 16, fields = { centroid = "f32", heat = "f32" } }

function flow.cache(c)
  c.centroid = sluice.gemm(c.k, c.v:l2norm("dim"):add_mul(0.5, 0.25), "token")
  c.heat = (c.v:l2norm("token") + 1):log():exp()
end

function flow.index(q, c)
  local score = (q:max("head") * c.centroid):div(c.heat):mean("dim")
  local share = score:exp():normalize("page")
  return sluice.topk(share * 1000, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
