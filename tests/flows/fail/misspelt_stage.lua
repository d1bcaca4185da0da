local flow = sluice.flow { name = "bad" }

function flow.indx(q, c)
  return sluice.window { last = 4 }
end

return flow
