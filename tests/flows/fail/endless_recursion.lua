local flow = sluice.flow { name = "bad" }

function flow.index(q, c)
  local function f() return 1 + f() end
  return f()
end

return flow
