#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <vector>

#include "scripting/graph/text.h"
#include "scripting/lua/trace.h"

namespace sluice {
namespace {

/// A flow whose cache stage runs `body`.
std::string flow_with(const std::string& body) {
  return "local flow = sluice.flow{name = \"x\"}\nfunction flow.cache(c)\n" + body +
         "\nend\nfunction flow.index(q, c) return sluice.window{last = 4} end\nreturn flow\n";
}

/// The diagnostic of a script that must be refused, quickly.
std::string refusal(const std::string& source, const TraceOptions& options = {}) {
  const auto start = std::chrono::steady_clock::now();
  std::string message;
  try {
    trace(source, "x.lua", options);
  } catch (const FlowError& error) {
    message = error.what();
  }
  EXPECT_NE(message, "") << "accepted: " << source.substr(0, 200);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(2)) << source.substr(0, 200);
  return message;
}

void expect_accepted(const std::string& body) { EXPECT_NO_THROW(trace(flow_with(body), "x.lua")) << body; }

TEST(Sandbox, HasNothingBeyondTheAllowList) {
  expect_accepted(R"(
    local allowed = {assert=1, error=1, ipairs=1, next=1, pairs=1, rawequal=1, rawget=1, rawlen=1, select=1, tonumber=1, tostring=1,
                     type=1, math=1, string=1, table=1, sluice=1}
    for _, name in ipairs{"_G", "_VERSION", "load", "loadstring", "loadfile", "dofile", "require", "package", "io", "os", "debug",
                          "collectgarbage", "print", "warn", "pcall", "xpcall", "coroutine", "setmetatable", "getmetatable",
                          "rawset", "utf8"} do
      assert(_ENV[name] == nil, name)
    end
    for name in pairs(_ENV) do assert(allowed[name], name) end
    for _, name in ipairs{"find", "match", "gmatch", "gsub", "dump", "pack", "unpack", "packsize"} do
      assert(string[name] == nil and ("x")[name] == nil, name)
    end
    assert(math.random == nil and math.randomseed == nil and table.move == nil)
  )");
}

TEST(Sandbox, StopsWhatRunsTooLong) {
  TraceOptions options;
  options.seconds = 0.2;
  for (const std::string body : {
           "while true do end",
           "for i = 1, math.maxinteger do end",
           "repeat local x = {} until false",
           "local function f() return f() end f()",
           "goto a ::a:: goto a",
           "local t = {} for i = 1, 9000 do t[i] = -i end while true do table.sort(t) end",
           "local t = {} for i = 1, 60000 do t[i] = i end while true do table.insert(t, 1, 0) table.remove(t, 1) end",
           "local t = {} for i = 1, 60000 do t['a' .. i] = i end for k in pairs(t) do end",
           "table.sort({3, 2, 1}, function(a, b) while true do end end)",
           "local p, t = ('x'):rep(60000), {} for i = 1, 900 do t[p .. i] = i end while true do for k in pairs(t) do end end",
           "local s = ('1'):rep(1000000) for i = 1, 4 do s = s .. s end while true do local x = s + 1 end",
           "local s = ('x'):rep(1000000) while true do s:reverse() end",
           "local s = ('x'):rep(1000000) while true do local t = s .. s end",
           "local a, b = ('x'):rep(1000000), ('x'):rep(1000000) while a == b do end",
           "while true do c.k:max('token') end",
           "while true do sluice.extent(c.k, 'token') end",
       }) {
    refusal(flow_with(body), options);
  }
}

TEST(Sandbox, StopsAtTheWallClockToo) {
  TraceOptions options;
  options.seconds = 0.05;
  options.instructions = INT64_MAX;
  EXPECT_NE(refusal(flow_with("while true do end"), options).find("too long"), std::string::npos);
}

TEST(Sandbox, ReportsTheLimitOnceInTheMidstOfTheScript) {
  for (const std::string body : {"while true do end", "local s = 'x' while true do s = s .. s end"}) {
    TraceOptions options;
    options.seconds = 0.05;
    std::vector<std::string> reported;
    options.on_stop = [&](const FlowError& refusal) { reported.emplace_back(refusal.what()); };
    const std::string message = refusal(flow_with(body), options);
    EXPECT_EQ(reported, std::vector<std::string>{message});
  }
}

TEST(Sandbox, CapsMemory) {
  for (const std::string body : {
           "local s = 'x' while true do s = s .. s end",
           "local t = {} for i = 1, 1e9 do t[i] = i end",
           "local t = {} while true do t = {t, t, {}} t[4] = t end",
           "local t = {} for i = 1, 1e9 do t[i] = ('x'):rep(100000) .. i end",
           "local function f(...) return f(1, ...) end f()",
           "local t = {} for i = 1, 1e9 do t[i] = function() return i end end",
           "local t = {} for i = 1, 1e6 do t[#t + 1] = sluice.fill end for i = 1, 1e9 do t[i] = {i} end",
           "local t = {} for i = 1, 100 do t[i] = ('x'):rep(1000000) .. i end table.concat(t)",
       }) {
    refusal(flow_with(body));
  }
}

TEST(Sandbox, RefusesHugeTexts) {
  for (const std::string body :
       {"('x'):rep(1e9)", "string.rep('ab', 1 << 60)", "string.rep('', 1 << 60, 'xy')", "('x'):rep(1000, ('y'):rep(10000))",
        "string.format('%99999d', 1)", "string.format(('%s'):rep(1000))",
        // Few texts, but compared many times.
        ("local s, t = ('x'):rep(1000000), {} local a, b = s .. 'a', s .. 'b' "
         "for i = 1, 10000 do t[i] = i % 3 > 0 and a or b end table.sort(t)")}) {
    refusal(flow_with(body));
  }
  expect_accepted("local t = {'b', 'a', 'c'} table.sort(t) assert(table.concat(t) == 'abc')");
  expect_accepted("assert(('').rep('', 1 << 60) == '')");
  expect_accepted("assert(('ab'):rep(3, ',') == 'ab,ab,ab' and ('x'):rep(-1) == '')");
}

TEST(Sandbox, RefusesBytecodeAndLargeSources) {
  EXPECT_NE(refusal(std::string("\x1bLua\x54\x00\x19\x93\r\n\x1a\n", 12)).find("compiled"), std::string::npos);
  EXPECT_NE(refusal(std::string(70000, ' ')).find("bytes"), std::string::npos);
  refusal("");
  refusal(std::string("\0\0\0", 3));
}

TEST(Sandbox, SurvivesDeepNestingInTheParser) {
  for (const auto& [open, close] :
       {std::pair<std::string, std::string>{"(", ")"}, {"{", "}"}, {"-", ""}, {"not ", ""}, {"a.", ""}, {"do ", " end"}}) {
    std::string source = "local a = ";
    for (int i = 0; i < 10000; ++i) source += open;
    source += "1";
    for (int i = 0; i < 10000; ++i) source += close;
    refusal(source);
  }
  std::string concatenation = "local s = 'x'";
  for (int i = 0; i < 5000; ++i) concatenation += " .. 'x'";
  refusal(concatenation);
}

TEST(Sandbox, SurvivesDeepRecursion) {
  refusal(flow_with("local function f() return 1 + f() end f()"));
  refusal(flow_with("local t = {} for i = 1, 100000 do t = {t} end sluice.fill(0, t)"));
}

TEST(Sandbox, TakesAnyErrorValue) {
  for (const std::string body : {"error()", "error(nil)", "error({})", "error(function() end)", "error(c)", "error(12)",
                                 "error(true)", "error(('x'):rep(100000))", "error('flow:99999999999999999999: x', 0)",
                                 "error('flow:', 0)", "assert(false)", "assert(nil, {})", "assert(false, c.k)"}) {
    refusal(flow_with(body));
  }
}

TEST(Sandbox, SealsMetatables) {
  for (const std::string body : {"c.k.max = 1",
                                 "sluice.max = 1",
                                 "q = sluice; q.new = function() end",
                                 "c[1] = c.k",
                                 "c[c] = c.k",
                                 "c[nil] = c.k",
                                 "local x = c.k[c.k]",
                                 "local x = sluice[1]",
                                 "c.k()",
                                 "sluice()",
                                 "local x = #c.k",
                                 "local x = c.k .. 'x'",
                                 "local x <close> = c.k",
                                 "for k in pairs(c) do end",
                                 "for k in pairs(sluice) do end",
                                 "next(c.k)",
                                 "rawget(sluice, 'max')",
                                 "string.format('%s', c.k)",
                                 "string.format('%p', {})",
                                 "string.format('%-5p', 'x')",
                                 "string.format('\\0%p', 'x')",
                                 "ipairs()",
                                 "table.unpack({}, 1, 1e8)",
                                 "table.concat(c)",
                                 "local x = c.k == c.v",
                                 "local x = c.k < 1",
                                 "tostring()",
                                 "select(0)"}) {
    refusal(flow_with(body));
  }
}

TEST(Sandbox, HidesAddressesAndHashOrder) {
  expect_accepted(
      "assert(tostring({}) == 'table' and tostring(print) == 'nil' and tostring(next) == 'function' and tostring(c.k) == "
      "'tensor')");
  expect_accepted(R"(
    local t, keys = {b = 1, a = 2, [10] = 3, [2] = 4, [true] = 5, [1.5] = 6}, {}
    for k, v in pairs(t) do keys[#keys + 1] = tostring(k) .. '=' .. v end
    assert(table.concat(keys, ' ') == '1.5=6 2=4 10=3 a=2 b=1 true=5', table.concat(keys, ' '))
    assert(next({}) == nil)
  )");
}

TEST(Sandbox, ReportsTheLineOfTheFault) {
  EXPECT_EQ(refusal("local x = 1\nlocal y = x + nil\n").substr(0, 9), "x.lua:2: ");
  EXPECT_EQ(refusal(flow_with("\n\nc.k:max('tokn')")).substr(0, 9), "x.lua:5: ");
  EXPECT_EQ(refusal("return 1 +\n").substr(0, 8), "x.lua:2:");
}

TEST(Sandbox, NamesTheLibraryFunctionAtFaultAndItsLine) {
  EXPECT_EQ(refusal(flow_with("string.rep('x')")), "x.lua:3: bad argument #2 to 'rep' (number expected, got no value)");
  EXPECT_EQ(refusal(flow_with("\nlocal s = ('x'):rep({})")), "x.lua:4: bad argument #1 to 'rep' (number expected, got table)");
  EXPECT_EQ(refusal(flow_with("table.concat({1, {}})")).substr(0, 9), "x.lua:3: ");
  EXPECT_EQ(refusal(flow_with("\ntable.insert({}, 5, 6)")), "x.lua:4: bad argument #2 to 'insert' (position out of bounds)");
  EXPECT_EQ(refusal(flow_with("table.sort({1, 2, 3}, 4)")), "x.lua:3: bad argument #2 to 'sort' (function expected, got number)");
  EXPECT_EQ(refusal(flow_with("table.sort({3, 'x', 1})")),
            "x.lua:3: entries to sort must be all numbers or all texts, and entry 2 is a string");
  EXPECT_EQ(refusal(flow_with("table.sort({{}, {}})")),
            "x.lua:3: entries to sort must be all numbers or all texts, and entry 1 is a table");
  EXPECT_EQ(refusal(flow_with("string.format('%d', 'x')")), "x.lua:3: bad argument #2 to 'format' (number expected, got string)");
  EXPECT_EQ(refusal(flow_with("string.format('%y', 1)")).substr(0, 9), "x.lua:3: ");
  EXPECT_EQ(refusal(flow_with("next(c.k)")).find("sluice.handle"), std::string::npos);
}

TEST(Sandbox, FormatsWhatHasNoAddress) {
  expect_accepted("assert(string.format('%d%% %s %%p \\0%5.1f', 3, 'x', 2.25) == '3% x %p \\0  2.2')");
}

TEST(Sandbox, KeepsScriptsApart) {
  const std::string poison = "string.rep = nil\nmath.huge = 1\ntable = nil\nsluice = nil\nreturn 1";
  refusal(poison);
  expect_accepted("assert(('x'):rep(2) == 'xx' and math.huge > 1e300 and table.pack and sluice.fill)");
}

}  // namespace
}  // namespace sluice
