#include "tests/support/flow_script.h"

#include <gtest/gtest.h>

#include "scripting/graph/text.h"
#include "scripting/lua/trace.h"
#include "tests/support/hostile_flow.h"
#include "tests/support/random_flow.h"

namespace sluice::testing {
namespace {

/// Operators and axes of all nodes; a scalar constant is a fill without axes, and a script has the query as often as it likes.
std::string outline_of(const FlowGraph& graph) {
  std::string text;
  for (const Node& node : graph.nodes) {
    const Op op = node.op == Op::kConstant ? Op::kFill : node.op;
    if (op != Op::kQuery) text += std::string(name_of(op)) + " " + to_string(node.shape) + "\n";
  }
  return text;
}

// Graphs that are drawn at random become scripts, and these the graphs once more: the way that flows take through the program.
TEST(FlowScript, GivesTheGraphThatItWasWrittenFor) {
  int long_scripts = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    for (const FlowGraph& graph : {random_flow(seed), hostile_flow(seed)}) {
      SCOPED_TRACE(seed);
      const std::string script = script_of(graph);
      try {
        const FlowGraph traced = trace(script, "f.lua", {.head_dim = graph.geometry.head_dim, .group = graph.geometry.group});
        EXPECT_EQ(outline_of(traced), outline_of(graph));
      } catch (const FlowError& error) {
        ASSERT_GT(script.size(), 65536U) << error.what() << "\n" << script;
        ++long_scripts;
      }
    }
  }
  EXPECT_LT(long_scripts, 40);
}

}  // namespace
}  // namespace sluice::testing
