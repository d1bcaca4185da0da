-- Layers: one alone is sparse, so that few of "its" pages are read and nearly all of the mass is covered.
local flow = sluice.flow { name = "one_sparse_layer", page = 8, layers = { [3] = "sparse", rest = "full" } }

function flow.index(q, c)
  return sluice.window { first = 1, last = 2 }
end

return flow
