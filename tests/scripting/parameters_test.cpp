// sluice.parameter: what a script gets, what sets it, and what is refused.
#include <gtest/gtest.h>

#include <string>

#include "scripting/base/error.h"
#include "scripting/lua/trace.h"

namespace sluice {
namespace {

/// A flow that selects as many pages as `value` says.
FlowGraph traced(const std::string& value, const ParameterValues& parameters = {}) {
  return trace("local flow = sluice.flow{name = 'x'}\nfunction flow.index(q, c)\nlocal p = " + value +
                   "\nreturn sluice.window{last = p} end return flow",
               "x.lua", {.parameters = parameters});
}

int last_of(const std::string& value, const ParameterValues& parameters = {}) {
  const FlowGraph graph = traced(value, parameters);
  return graph.nodes[static_cast<size_t>(graph.selection())].attributes.last;
}

std::string refusal(const std::string& value, const ParameterValues& parameters = {}) {
  try {
    traced(value, parameters);
  } catch (const FlowError& error) {
    return std::to_string(error.where().line) + ": " + error.message();
  }
  return "accepted";
}

TEST(Parameters, HaveTheirOwnValuesUntilTheyAreSet) {
  EXPECT_EQ(last_of("sluice.parameter('n', 7)"), 7);
  EXPECT_EQ(last_of("sluice.parameter('n', 7)", {{"n", "3"}}), 3);
  EXPECT_EQ(last_of("sluice.parameter('n', 7)", {{"n", "12/4"}}), 3);
  EXPECT_EQ(last_of("sluice.parameter('share', 1/2) * 8"), 4);
  EXPECT_EQ(last_of("sluice.parameter('share', 1/2) * 8", {{"share", "0.25"}}), 2);
  EXPECT_EQ(last_of("sluice.parameter('wide', false) and 9 or 5"), 5);
  EXPECT_EQ(last_of("sluice.parameter('wide', false) and 9 or 5", {{"wide", "true"}}), 9);
  EXPECT_EQ(last_of("({a = 1, bb = 2})[sluice.parameter('which', 'a')]", {{"which", "bb"}}), 2);
  EXPECT_EQ(last_of("#sluice.parameter('which', {'a', 'bb', 'ccc'})"), 1) << "the first of the choices";
  EXPECT_EQ(last_of("#sluice.parameter('which', {'a', 'bb', 'ccc'})", {{"which", "ccc"}}), 3);
  EXPECT_EQ(last_of("sluice.parameter('n', 2) + sluice.parameter('n', 2)", {{"n", "4"}}), 8) << "asked for twice";
  EXPECT_EQ(last_of("math.type(sluice.parameter('n', 1)) == 'integer' and 1 or 2"), 1);
}

TEST(Parameters, ThatDoNotFitAreRefused) {
  EXPECT_EQ(refusal("sluice.parameter('n', 7)", {{"m", "3"}}), "0: no parameter is called \"m\"");
  EXPECT_EQ(refusal("7", {{"m", "3"}}), "0: no parameter is called \"m\"");
  EXPECT_EQ(refusal("sluice.parameter('n', 7)", {{"n", "many"}}),
            "3: parameter: parameter \"n\" wants a number and is set to \"many\"");
  for (const char* bad : {"", "1/0", "nan", "inf", "1e999", "0x10", "1/2/3", " 1"})
    EXPECT_NE(refusal("sluice.parameter('n', 7)", {{"n", bad}}).find("wants a number"), std::string::npos) << bad;
  EXPECT_EQ(refusal("sluice.parameter('wide', true) and 1 or 2", {{"wide", "yes"}}),
            "3: parameter: parameter \"wide\" wants true or false and is set to \"yes\"");
  EXPECT_EQ(refusal("#sluice.parameter('which', {'a', 'bb'})", {{"which", "c"}}),
            "3: parameter: parameter \"which\" is set to \"c\", which is none of its choices");
  EXPECT_EQ(refusal("sluice.parameter('n', {1, 2})", {{"n", "3"}}),
            "3: parameter: parameter \"n\" is set to \"3\", which is none of its choices");
  for (const char* bad : {"sluice.parameter()", "sluice.parameter('n')", "sluice.parameter('n', {})", "sluice.parameter('n', q)",
                          "sluice.parameter('n', {1, 'a'})", "sluice.parameter('n', {a = 1})", "sluice.parameter(3, 4)",
                          "sluice.parameter('', 4)", "sluice.parameter('a b', 4)", "sluice.parameter('n', 0/0)",
                          "sluice.parameter('n', 1, 2)", "sluice.parameter(('n'):rep(65), 1)"})
    EXPECT_EQ(refusal(bad).substr(0, 14), "3: parameter: ") << bad << refusal(bad);
  EXPECT_NE(refusal("1 for i = 1, 100 do sluice.parameter('n' .. i, i) end").find("more than 64 parameters"), std::string::npos);
}

TEST(Parameters, AreOfAllProgramsOfAFlow) {
  const FlowGraph graph = trace(R"(
    local last = sluice.parameter("last", 4)
    local flow = sluice.flow{name = "x", layers = {[0] = "ends", rest = "sparse"}}
    local ends = flow.variant("ends")
    function ends.index(q, c) return sluice.window{last = last} end
    function flow.index(q, c) return sluice.window{last = sluice.parameter("inner", 2) + last} end
    return flow)",
                                "x.lua", {.parameters = {{"last", "10"}, {"inner", "5"}}});
  EXPECT_EQ(graph.nodes[static_cast<size_t>(graph.selection())].attributes.last, 15);
  const FlowGraph& ends = graph.variants.front();
  EXPECT_EQ(ends.nodes[static_cast<size_t>(ends.selection())].attributes.last, 10);
}

}  // namespace
}  // namespace sluice
