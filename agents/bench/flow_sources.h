#pragma once

namespace sluice {

// The shipped flows of these names, with pages of 16; their budget is set once they are traced.
inline constexpr const char* kBenchedFlows[] = {R"(
local flow = sluice.flow { name = "block_topk", page = 16 }
function flow.cache(c) c.centroid = c.k:mean("token") end
function flow.index(q, c) return sluice.topk(q:mean("head"):dot(c.centroid), { k = 1, first = 1, last = 2 }) end
return flow)",
                                                R"(
local flow = sluice.flow { name = "quest", page = 16 }
function flow.cache(c) c.hi = c.k:max("token"); c.lo = c.k:min("token") end
function flow.index(q, c)
  return sluice.topk((q * c.hi):maximum(q * c.lo):sum("dim"):max("head"), { k = 1, first = 1, last = 2 })
end
return flow)"};

}  // namespace sluice
