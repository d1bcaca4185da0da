#include "tests/support/flow_script.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <sstream>
#include <vector>

#include "scripting/graph/text.h"
#include "scripting/lua/trace.h"
#include "tests/support/hostile_flow.h"
#include "tests/support/random_flow.h"

namespace sluice::testing {
namespace {

/// All nodes as graphs print them. A scalar constant is a fill without axes, and a script has the query as often as it likes:
/// each use of it is the same.
std::string outline_of(const FlowGraph& graph) {
  std::vector<std::string> names;
  std::string text;
  for (size_t id = 0; id < graph.nodes.size(); ++id) {
    const bool is_query = graph.nodes[id].op == Op::kQuery;
    names.push_back(is_query ? "query" : "%" + std::to_string(id - std::count(names.begin(), names.end(), "query")));
    std::istringstream words(to_text(graph, static_cast<NodeId>(id)));
    for (std::string word; words >> word && !is_query;) {
      if (word == "constant") word = "fill";
      text += (word.front() == '%' ? names.at(std::stoul(word.substr(1))) : word) + " ";
    }
    if (!is_query) text += "\n";
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
