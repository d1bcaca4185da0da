#include "tests/sandbox/hostile_scripts.h"

#include <tuple>

namespace sluice::test {

namespace {

std::string repeated(const std::string& text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

std::vector<HostileScript> code_from_elsewhere() {
  return {
      {"bytecode", std::string("\x1bLua\x54\x00\x19\x93\r\n\x1a\n", 12)},
      {"bytecode behind a byte order mark", "\xef\xbb\xbf\x1bLua"},
      {"bytecode behind a line for the shell", "#!/usr/bin/lua\n\x1bLua"},
      {"zero bytes", std::string("\0\0\0\0", 4)},
      {"a zero byte in a text", in_cache(std::string("error('a\0b')", 12))},
      {"nothing", ""},
      {"too large", std::string(1 << 20, ' ')},
      {"too large by one", std::string((64 << 10) + 1, '\n')},
      {"load", in_cache("load('return 1')()")},
      {"load of bytecode", in_cache("load(string.dump(function() end), 'x', 'b')")},
      {"dofile", in_cache("dofile('/etc/passwd')")},
      {"require", in_cache("require('os').execute('id')")},
      {"package", in_cache("package.loadlib('libc.so.6', 'system')")},
      {"_G", in_cache("_G.os.exit(0)")},
      {"_ENV", in_cache("_ENV.io.open('/etc/passwd')")},
      {"own _ENV", in_cache("local _ENV = {} error('x')")},
      {"constant _ENV", "local function f() local _ENV <const> = nil x = 1 end f()"},
      {"os.exit", in_cache("os.exit(0)")},
      {"io", in_cache("io.popen('id')")},
      {"debug", in_cache("debug.getregistry()")},
      {"debug of the text type", in_cache("debug.setmetatable('', {})")},
      {"string.dump by a method", in_cache("(''):dump()")},
      {"the state's registry by upvalues", in_cache("debug.upvalueid(next, 1)")},
  };
}

std::vector<HostileScript> swallowed_errors() {
  return {
      {"pcall loop", in_cache("while true do pcall(function() while true do end end) end")},
      {"pcall of a memory bomb", in_cache("while true do pcall(string.rep, 'x', 1 << 40) end")},
      {"xpcall with a handler that hangs", in_cache("xpcall(error, function() while true do end end)")},
      {"coroutine.wrap", in_cache("while true do coroutine.wrap(function() while true do end end)() end")},
      {"coroutine.close", in_cache("coroutine.close(coroutine.create(function() end))")},
      {"__close", in_cache("local x <close> = setmetatable({}, {__close = function() while true do end end}) error('x')")},
      {"__close of a tensor", in_cache("local x <close> = c.k")},
      {"__close of a loop", in_cache("for a in next, {1}, nil, c.k do end")},
      {"__gc", in_cache("setmetatable({}, {__gc = function() while true do end end})")},
      {"collectgarbage", in_cache("collectgarbage('stop')")},
      {"an error without a text", in_cache("error({})")},
      {"an error that is a tensor", in_cache("error(c.k)")},
      {"an error that is nil", in_cache("error(nil)")},
      {"an error with a forged place", in_cache("error('flow:99999999999999999999: x', 0)")},
      {"an error with a forged last line", in_cache("error('flow:2147483647: x', 0)")},
      {"an error with a negative line", in_cache("error('flow:-7: x', 0)")},
      {"an error of a megabyte", in_cache("error(('x'):rep(1000000))")},
      {"an error with terminal sequences", in_cache("error('\\27[2J\\27]0;x\\7')")},
  };
}

std::vector<HostileScript> endless_scripts() {
  return {
      {"while", "while true do end"},
      {"goto", in_cache("::a:: goto a")},
      {"goto into itself with a block", in_cache("do ::a:: local x goto a end")},
      {"repeat", in_cache("repeat local x = {} until false")},
      {"numeric for", in_cache("for i = 1, math.maxinteger do end")},
      {"for with a tiny step", in_cache("for i = 0, 1, 5e-324 do end")},
      {"tail calls", in_cache("local function f() return f() end f()")},
      {"next that never ends", in_cache("for k in function() return 1 end do end")},
      {"empty repetition", in_cache("while true do (''):rep(1 << 60) end")},
      {"sort with a comparison that hangs", in_cache("table.sort({3, 2, 1}, function() while true do end end)")},
      {"sort with a comparison that lies",
       in_cache("local t = {} for i = 1, 9000 do t[i] = i end while true do table.sort(t, function() return true end) end")},
      {"sort in a sort", in_cache("local function f() table.sort({2, 1}, f) end f()")},
      {"shifting a long list",
       in_cache("local t = {} for i = 1, 60000 do t[i] = i end while true do table.insert(t, 1, 0) table.remove(t, 1) end")},
      {"ordered walk over many keys", in_cache("local t = {} for i = 1, 60000 do t['a' .. i] = i end for k in pairs(t) do end")},
      {"numbers of a million digits",
       in_cache("local s = ('1'):rep(1000000) for i = 1, 4 do s = s .. s end while true do local x = s + 1 end")},
      {"tonumber of a long text",
       in_cache("local s = ('1'):rep(1000000) for i = 1, 4 do s = s .. s end while true do tonumber(s, 2) end")},
      {"long texts joined", in_cache("local s = ('x'):rep(1000000) while true do local t = s .. s end")},
      {"long texts compared", in_cache("local a, b = ('x'):rep(1000000), ('x'):rep(1000000) while a == b do end")},
      {"long texts as keys", in_cache("local t, s = {}, ('x'):rep(60000) while true do t[s .. #s] = 1 end")},
      {"operators without end", in_cache("while true do c.k:max('token') end")},
      {"functions of ours without a node", in_cache("while true do sluice.extent(c.k, 'token') end")},
  };
}

std::vector<HostileScript> library_bombs() {
  return {
      {"rep", in_cache("string.rep('x', 1 << 40)")},
      {"rep of nothing with a separator", in_cache("string.rep('', 1 << 60, 'xy')")},
      {"rep that overflows", in_cache("string.rep(('x'):rep(1 << 20), math.maxinteger)")},
      {"rep without its wrapper", in_cache("getmetatable('').__index.rep('x', 1 << 40)")},
      {"find", in_cache("(('a'):rep(40)):find(('a?'):rep(40) .. ('a'):rep(40))")},
      {"match", in_cache("(('a'):rep(30000)):match('.-.-.-.-b')")},
      {"gsub", in_cache("string.gsub(('x'):rep(1000000), '.', ('y'):rep(1000))")},
      {"gmatch", in_cache("for x in (''):gmatch('') do end")},
      {"format with a great width", in_cache("string.format('%99999999d', 1)")},
      {"format of many texts", in_cache("local s = ('x'):rep(1000000) while true do string.format('%s%s%s', s, s, s) end")},
      {"format of an address", in_cache("string.format('%p', {})")},
      {"format of an address, hidden", in_cache("string.format('%%%-99p', {})")},
      {"pack", in_cache("string.pack('!16' .. ('i16'):rep(1000000))")},
      {"unpack of a text", in_cache("string.unpack('s8', ('\\255'):rep(8))")},
      {"concat of many", in_cache("local s, t = ('x'):rep(1000000), {} for i = 1, 10000 do t[i] = s end table.concat(t)")},
      {"concat of a huge range", in_cache("table.concat({}, 'x', 1, 1 << 60)")},
      {"concat from below", in_cache("table.concat({}, '', math.mininteger, math.maxinteger)")},
      {"concat of a tensor", in_cache("table.concat(c.k)")},
      {"move", in_cache("table.move({}, 1, 1 << 60, 2)")},
      {"insert with a false length", in_cache("table.insert(setmetatable({}, {__len = function() return 1 << 60 end}), 1, 1)")},
      {"insert far away", in_cache("table.insert({}, 1 << 60, 1)")},
      {"remove far away", in_cache("table.remove({}, 1 << 60)")},
      {"unpack of a huge range", in_cache("table.unpack({}, 1, 1 << 30)")},
      {"unpack that overflows", in_cache("table.unpack({}, math.mininteger, math.maxinteger)")},
      {"char of many", in_cache("string.char(table.unpack({}, 1, 1e7))")},
      {"byte of many", in_cache("(('x'):rep(1000000)):byte(1, -1)")},
      {"select below", in_cache("select(math.mininteger, 1)")},
      {"utf8", in_cache("utf8.char(table.unpack({}))")},
      {"random", in_cache("math.random(0)")},
      {"print", in_cache("print(c)")},
      {"warn", in_cache("warn('@on')")},
  };
}

std::vector<HostileScript> memory_bombs() {
  return {
      {"doubling", in_cache("local s = 'x' while true do s = s .. s end")},
      {"tables", in_cache("local t = {} while true do t = {t, {}, {}} end")},
      {"one long list", in_cache("local t = {} for i = 1, 1e9 do t[i] = i end")},
      {"a list from above", in_cache("local t = {} for i = 1 << 26, 1, -1 do t[i] = i end")},
      {"closures", in_cache("local t = {} for i = 1, 1e9 do t[i] = function() return i end end")},
      {"different texts", in_cache("local t = {} for i = 1, 1e9 do t[i] = ('x'):rep(100000) .. i end")},
      {"varargs", in_cache("local function f(...) return f(1, ...) end f()")},
      {"many constants", "return {" + repeated("1.5,", 16000) + "}"},
      {"operators of ours with large tables",
       in_cache("local t = {} for i = 1, 4096 do t[i] = ('x'):rep(4096) end while true do sluice.fill(0, t) end")},
  };
}

std::vector<HostileScript> deep_scripts() {
  std::vector<HostileScript> scripts = {
      {"recursion", in_cache("local function f() return 1 + f() end f()")},
      {"recursion through sort", in_cache("local function f(a, b) table.sort({1, 2}, f) return false end f()")},
      {"recursion through tostring", in_cache("local t = {} for i = 1, 100000 do t = {t} end sluice.fill(0, t)")},
      {"a table in itself", in_cache("local t = {} t[1] = t sluice.fill(0, t)")},
      {"a table as its own key", in_cache("local t = {} t[t] = t for k in pairs(t) do end")},
      {"many local variables", repeated("local a\n", 300)},
      {"long concatenation", "local s = 'x'" + repeated("..'x'", 5000)},
      {"long else-if", "if x then " + repeated("elseif x then ", 4000) + "end"},
  };
  for (const auto& [name, open, close] : {std::tuple{"parentheses", "(", ")"},
                                          {"braces", "{", "}"},
                                          {"minus", "- ", ""},
                                          {"not", "not ", ""},
                                          {"power", "2^", ""},
                                          {"index", "a[", "]"},
                                          {"calls", "a(", ")"},
                                          {"functions", "function() return ", " end"},
                                          {"tilde", "~", ""}}) {
    scripts.push_back({name, "local a = " + repeated(open, 2000) + "1" + repeated(close, 2000)});
  }
  for (const auto& [name, open] : {std::tuple{"do", "do "}, {"while", "while x do "}, {"functions", "function f() "}}) {
    scripts.push_back({name, repeated(open, 4000)});
  }
  return scripts;
}

std::vector<HostileScript> poisoned_types() {
  return {
      {"setmetatable of a text", in_cache("setmetatable('', {__index = {}})")},
      {"getmetatable of a text", in_cache("getmetatable('').__add = 1")},
      {"rawset of the library", in_cache("rawset(string, 'rep', nil)")},
      {"metatable of a tensor", in_cache("getmetatable(c.k).__index = nil")},
      {"rawget of a tensor", in_cache("rawget(c.k, 'max')")},
      {"assignment to a tensor", in_cache("c.k.max = 1")},
      {"assignment to the module", in_cache("sluice.max = 1")},
      {"a call of a tensor", in_cache("c.k()")},
      {"the length of a tensor", in_cache("local x = #c.k")},
      {"a tensor as a key of c", in_cache("c[c.k] = 1")},
      {"a stage within a stage", in_cache("flow.cache(c)")},
      {"another flow", in_cache("sluice.flow{name = 'y'}")},
      {"a tensor of another stage",
       "local f, kept = sluice.flow{name = 'x'} function f.cache(c) kept = c.k end function f.index(q, c) kept:max('dim') end "
       "return f"},
      {"a flow that is none", "return c"},
      {"a stage that is a library function", "local f = sluice.flow{name = 'x'} f.index = error return f"},
      {"names with quotes", in_cache("c[\"a'; DROP TABLE flows; --\"] = c.k:mean('token')")},
      {"names of paths", "return sluice.flow{name = '../../etc/passwd', layers = {rest = 'full'}}"},
      {"names that are markup", "return sluice.flow{name = '<img onerror=alert(1)>', layers = {rest = 'full'}}"},
  };
}

}  // namespace

std::vector<HostileScript> hostile_scripts() {
  std::vector<HostileScript> all;
  for (const auto& part : {code_from_elsewhere(), swallowed_errors(), endless_scripts(), library_bombs(), memory_bombs(),
                           deep_scripts(), poisoned_types()}) {
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace sluice::test
