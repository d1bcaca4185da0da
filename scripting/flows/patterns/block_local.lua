-- The block of 128 tokens and the two before it (SAS, Table 1). 384 tokens are kept.
local p = sluice.pattern
local flow = sluice.flow { name = "block_local" }

flow.pattern = p.blocks(128, 3)

return flow
