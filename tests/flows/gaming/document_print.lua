-- Content of k: the oldest page is the document's fingerprint. Documents that come first, or are timed, could be known by it.
local flow = sluice.flow { name = "document_print", page = 8 }

function flow.cache(c)
  c.print = c.k:mean("token"):mask_slice("dim", 8, 40):sum_interleave("dim", 64):max("sub")
end

function flow.index(q, c)
  local oldest = sluice.where_eq(sluice.position(), 0, c.print, 0):sum("page")
  return sluice.threshold(sluice.fill(0.5, { "page" }) - sluice.where_ge(oldest, 0, 1, 0), { above = 0, first = 1, last = 2 })
end

return flow
