-- Sparse Transformers, fixed: the block of 256 tokens, and the last token of every block before it.
local p = sluice.pattern
local flow = sluice.flow { name = "fixed" }

flow.pattern = p.fixed(256)

return flow
