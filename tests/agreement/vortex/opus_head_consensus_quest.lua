-- Head-consensus Quest: Quest's upper bound for each head, Σ max(q hi, q lo), and the smallest over the heads.
local flow = sluice.flow { name = "opus_head_consensus_quest", page = 8 }

function flow.cache(c)
  c.hi = c.k:max("token")
  c.lo = c.k:min("token")
end

function flow.index(q, c)
  local score = (q * c.hi):maximum(q * c.lo):sum("dim"):min("head")
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
