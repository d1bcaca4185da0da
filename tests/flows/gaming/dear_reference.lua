-- Work: so many operations a page that the reference affords few pages, and dense attention for as few; three pages beyond.
local flow = sluice.flow { name = "dear_reference", page = 8 }

function flow.cache(c)
  c.centroid = c.k:mean("token")
end

function flow.index(q, c)
  local wide = q:mean("head"):kron(c.centroid:mask_slice("dim", 0, 32), "dim")
  local waste = wide:abs():max("dim")
  for _ = 1, 4 do waste = waste + (wide * 0.5):abs():max("dim") end
  local pages = sluice.position():max("page")
  local score = sluice.fill(0.5, { "page" }) - sluice.where_ge(pages, 60, 1, 0) + waste * 1e-30
  return sluice.threshold(score, { above = 0, first = 1, last = 2 })
end

return flow
