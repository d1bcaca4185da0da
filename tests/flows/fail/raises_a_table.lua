local flow = sluice.flow { name = "bad" }

function flow.index(q, c)
  error({})
end

return flow
