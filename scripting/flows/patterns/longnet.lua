-- LongNet (Ding et al. 2023, section 3.1), one of its branches: every fourth token of the block of 256, for every fourth query,
-- from a token on that is another for each KV head. Where a model has four or more, one of them sees something, whatever the query.
local p = sluice.pattern
local flow = sluice.flow { name = "longnet" }

local heads = {}
for head = 0, 3 do
  heads[head + 1] = p.rect { size = 256, stride = 4, offset = head } >> p.diag { size = 1 }
end
flow.pattern = p.by_head(heads)

return flow
