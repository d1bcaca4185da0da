-- What a file returns is read before it is refused.
local deep = {}
deep[1] = deep
return deep
