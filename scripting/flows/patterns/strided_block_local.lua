-- LongNet (Ding et al. 2023), one of its branches: every fourth token of the block of 256, for every fourth query. Three queries of four
-- see nothing.
local p = sluice.pattern
local flow = sluice.flow { name = "strided_block_local" }

flow.pattern = p.rect { size = 256, stride = 4 } >> p.diag { size = 1 }

return flow
