-- Sparse Transformers, strided (Child et al. 2019): the last 512 tokens, and every 512th before them. Nearly all are kept.
local p = sluice.pattern
local flow = sluice.flow { name = "strided" }

flow.pattern = p.strided(512, 512)

return flow
