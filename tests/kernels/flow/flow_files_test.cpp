#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "scripting/lua/trace.h"
#include "tests/support/flow_judge.h"

namespace sluice::testing {
namespace {

std::vector<std::string> flow_files() {
  std::vector<std::string> files;
  for (const char* folder : {"/scripting/flows", "/tests/flows/okay"}) {
    for (const auto& entry : std::filesystem::directory_iterator(std::string(SLUICE_SOURCE_DIR) + folder)) {
      if (entry.path().extension() == ".lua") files.push_back(entry.path().string());
    }
  }
  std::sort(files.begin(), files.end());
  return files;
}

class FlowFiles : public ::testing::TestWithParam<std::string> {
 protected:
  void expect_agreement(const TraceOptions& geometry, const JudgeOptions& options) {
    FlowGraph graph = trace_file(GetParam(), geometry);
    // The judge runs a layer in the middle; layers that the flow leaves dense are the engine's matter.
    if (graph.selection() != kNoNode) graph.layers = LayerChoice{};
    EXPECT_EQ(judge(graph, options).fault, "") << options.tokens << " tokens";
  }
};

TEST_P(FlowFiles, AgreesWithOracleOnRandomKeys) { expect_agreement({.head_dim = 64, .group = 4}, {.tokens = 2000, .steps = 3}); }

TEST_P(FlowFiles, AgreesWithOracleOnShortCaches) {
  for (const int tokens : {1, 7, 40, 200}) expect_agreement({.head_dim = 64, .group = 1}, {.tokens = tokens, .steps = 1});
}

TEST_P(FlowFiles, AgreesWithOracleOnTiedScores) {
  expect_agreement({.head_dim = 16, .group = 2}, {.tokens = 1500, .steps = 2, .levels = 2});
}

TEST_P(FlowFiles, AgreesWithOracleOnSpecialScores) {
  expect_agreement({.head_dim = 16, .group = 3}, {.tokens = 1500, .steps = 2, .specials = true});
}

TEST_P(FlowFiles, AgreesWithOracleOverPageBoundaries) {
  expect_agreement({.head_dim = 16, .group = 16}, {.tokens = 500, .steps = 40});
}

INSTANTIATE_TEST_SUITE_P(All, FlowFiles, ::testing::ValuesIn(flow_files()),
                         [](const auto& file) { return std::filesystem::path(file.param).stem().string(); });

}  // namespace
}  // namespace sluice::testing
