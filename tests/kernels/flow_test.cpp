#include "kernels/cpu/flow.h"

#include <gtest/gtest.h>

#include <tuple>

#include "tests/support/flow_judge.h"
#include "tests/support/graph_builder.h"

namespace sluice::testing {
namespace {

void expect_agreement(const FlowGraph& graph, const JudgeOptions& options) {
  const Verdict verdict = judge(graph, options);
  EXPECT_EQ(verdict.fault, "") << graph.name;
}

// Geometry and length: group, dim, page, KV type, tokens.
using Case = std::tuple<int, int, int, DataType, int>;

class FlowOverGeometries : public ::testing::TestWithParam<Case> {
 protected:
  Geometry geometry() const {
    const auto [group, dim, page, kv, tokens] = GetParam();
    return {dim, group, page, kv};
  }
  JudgeOptions options() const { return {.tokens = std::get<4>(GetParam()), .steps = 3}; }
};

TEST_P(FlowOverGeometries, MeanScoreAgreesWithOracle) {
  expect_agreement(mean_score_graph(geometry(), GraphBuilder::budget(4, 1, 1)), options());
}

TEST_P(FlowOverGeometries, QuestAgreesWithOracle) {
  expect_agreement(quest_graph(geometry(), GraphBuilder::budget(4, 1, 2)), options());
}

INSTANTIATE_TEST_SUITE_P(Shapes, FlowOverGeometries,
                         ::testing::Values(Case{1, 64, 16, DataType::kBF16, 1}, Case{4, 64, 16, DataType::kBF16, 16},
                                           Case{4, 64, 16, DataType::kBF16, 1000}, Case{16, 64, 8, DataType::kF32, 157},
                                           Case{3, 128, 32, DataType::kF32, 400}, Case{7, 256, 64, DataType::kBF16, 700},
                                           Case{2, 20, 128, DataType::kF32, 1300}, Case{5, 1, 8, DataType::kBF16, 333},
                                           Case{2, 16, 8, DataType::kBF16, 39'998}));

}  // namespace
}  // namespace sluice::testing
