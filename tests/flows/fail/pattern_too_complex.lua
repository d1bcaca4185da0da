local p = sluice.pattern
local flow = sluice.flow { name = "bad" }
local all = p.strided(7, 64)
for _, stride in ipairs { 61, 59, 53, 47, 43, 41, 37, 31, 29 } do
  all = all & ~(p.rect { stride = { stride, stride + 2 } } | p.dilated(stride, stride + 4))
end
flow.pattern = all
return flow
