-- Interleaved envelope: every head paired (Kronecker) with the envelope of every quarter of the page, Σ max(q hi, q lo) for each pair, and the largest.
local flow = sluice.flow { name = "gpt_interleaved_envelope", page = 8 }

function flow.cache(c)
  c.hi = c.k:max_interleave("token", 2)
  c.lo = c.k:min_interleave("token", 2)
end

function flow.index(q, c)
  local heads = q:reshape({ { "sub", q:extent("head") }, { "dim", q:extent("dim") } })
  local high, low = sluice.kron(heads, c.hi, "sub"), sluice.kron(heads, c.lo, "sub")
  local score = high:maximum(low):sum("dim"):max("sub")
  return sluice.topk(score, { ratio = 1 / 8, first = 1, last = 2 })
end

return flow
