#include "kernels/cpu/flow/flow.h"

#include <gtest/gtest.h>

#include <tuple>
#include <vector>

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

TEST(FlowSelection, JoinsSharedUnionsInTimeWhateverTheirPaths) {
  GraphBuilder b(Geometry{});
  const NodeId score = b.index(Op::kPosition);
  NodeId older = b.index(Op::kTopK, {score}, GraphBuilder::budget(4));
  NodeId newer = b.index(Op::kWindow, {}, GraphBuilder::budget(0, 1, 1));
  for (int i = 0; i < 2000; ++i) {
    const NodeId joined = b.index(Op::kUnion, {older, newer});
    older = newer;
    newer = joined;
  }
  b.graph.attend_to(newer);
  for (const char* left_out : {"", "flatten_unions"}) {
    CompileOptions options;
    if (*left_out != '\0') options.disabled_passes.emplace_back(left_out);
    const auto flow = judged_on_cpu(compile(b.graph, options).plan, 10, 1);
    const std::vector<float> tokens(static_cast<size_t>(10 * b.graph.geometry.page * b.graph.geometry.head_dim));
    flow->append(tokens, tokens);
    const std::vector<float> query(static_cast<size_t>(b.graph.geometry.group * b.graph.geometry.head_dim));
    EXPECT_EQ(flow->select(query, {}), (std::vector<int32_t>{0, 6, 7, 8, 9})) << left_out;
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, FlowOverGeometries,
                         ::testing::Values(Case{1, 64, 16, DataType::kBF16, 1}, Case{4, 64, 16, DataType::kBF16, 16},
                                           Case{4, 64, 16, DataType::kBF16, 1000}, Case{16, 64, 8, DataType::kF32, 157},
                                           Case{3, 128, 32, DataType::kF32, 400}, Case{7, 256, 64, DataType::kBF16, 700},
                                           Case{2, 20, 128, DataType::kF32, 1300}, Case{5, 1, 8, DataType::kBF16, 333},
                                           Case{2, 16, 8, DataType::kBF16, 39'998}));

}  // namespace
}  // namespace sluice::testing
