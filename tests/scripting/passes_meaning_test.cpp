// Whatever passes are left out, plans are sound and mean what their flows do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "kernels/reference/oracle.h"
#include "scripting/graph/ops.h"
#include "scripting/graph/plan.h"
#include "scripting/graph/text.h"
#include "scripting/passes/canonical.h"
#include "tests/scripting/flow_files.h"
#include "tests/scripting/planned_flow.h"
#include "tests/support/random_flow.h"

namespace sluice {
namespace {

using testing::flow_of;
using testing::kAllPasses;

/// Steps in order, every node in one step, operands ready, outputs exactly what later steps read.
void expect_sound(const Plan& plan) {
  std::vector<int> step_of(plan.graph.nodes.size(), -1);
  std::vector<PlanStep> steps = plan.index;
  steps.insert(steps.end(), plan.after.begin(), plan.after.end());
  for (size_t s = 0; s < steps.size(); ++s) {
    ASSERT_FALSE(steps[s].nodes.empty());
    for (const NodeId id : steps[s].nodes) {
      EXPECT_EQ(plan.graph.nodes[static_cast<size_t>(id)].stage, s < plan.index.size() ? Stage::kIndex : Stage::kAfter);
      ASSERT_EQ(step_of[static_cast<size_t>(id)], -1) << "%" << id << " is in two steps";
      step_of[static_cast<size_t>(id)] = static_cast<int>(s);
      for (const NodeId input : plan.graph.nodes[static_cast<size_t>(id)].inputs) {
        const bool constant = plan.graph.nodes[static_cast<size_t>(input)].op == Op::kConstant;
        EXPECT_TRUE(constant || step_of[static_cast<size_t>(input)] >= 0) << "%" << input << " is not ready for %" << id;
      }
    }
  }
  std::set<NodeId> read_later;
  NodeId last_select = kNoNode;
  for (size_t i = 0; i < plan.graph.nodes.size(); ++i) {
    const Node& node = plan.graph.nodes[i];
    if (node.stage == Stage::kCache) continue;
    EXPECT_EQ(step_of[i] >= 0, node.op != Op::kConstant) << "%" << i;
    for (const NodeId input : node.inputs) {
      if (step_of[static_cast<size_t>(input)] >= 0 && step_of[static_cast<size_t>(input)] != step_of[i]) read_later.insert(input);
    }
  }
  for (const AttentionSource& source : plan.graph.sources) {
    if (source.bias != kNoNode) read_later.insert(source.bias);
    if (source.logits != kNoNode) read_later.insert(source.logits);
  }
  std::set<NodeId> outputs;
  for (const PlanStep& step : steps) {
    outputs.insert(step.outputs.begin(), step.outputs.end());
    if (step.kind == StepKind::kSelect) last_select = step.nodes.front();
    if (step.kind == StepKind::kRow || step.kind == StepKind::kSelect || step.kind == StepKind::kSave) {
      EXPECT_EQ(step.nodes.size(), 1u);
    }
    for (const NodeId id : step.nodes) {
      const Node& node = plan.graph.nodes[static_cast<size_t>(id)];
      if (step.kind == StepKind::kQuery) {
        EXPECT_FALSE(has_axis(node.shape, Axis::kPage));
      }
      if (step.kind == StepKind::kPages) {
        EXPECT_TRUE(has_axis(node.shape, Axis::kPage));
      }
    }
  }
  EXPECT_EQ(outputs, read_later);
  if (plan.attend.is_plain()) {
    EXPECT_EQ(last_select, plan.graph.selection());
  }
}

/// Keys, values and queries of a decode sequence.
struct Sequence {
  std::vector<float> keys, values, queries;
};

Sequence random_sequence(const Geometry& geometry, int tokens, int steps, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const auto draw = [&](int n) {
    std::vector<float> numbers(static_cast<size_t>(n));
    for (float& number : numbers) number = normal(random);
    return numbers;
  };
  return {draw((tokens + steps) * geometry.head_dim), draw((tokens + steps) * geometry.head_dim),
          draw(steps * geometry.group * geometry.head_dim)};
}

/// The scores of the selection that `selection` of the compiled graph was.
const oracle::Scores& scores_of(const oracle::Result& result, const FlowGraph& compiled, NodeId selection) {
  const NodeId traced = compiled.nodes[static_cast<size_t>(selection)].traced;
  const auto found = std::find_if(result.scores.begin(), result.scores.end(),
                                  [&](const oracle::Scores& scores) { return traced == kNoNode || scores.selection == traced; });
  if (found == result.scores.end()) throw InternalError("a selection that comes from nowhere");
  return *found;
}

void expect_same(const oracle::Scores& before, const oracle::Scores& after) {
  ASSERT_EQ(before.values.size(), after.values.size());
  for (size_t i = 0; i < before.values.size(); ++i) {
    const oracle::Bounded& a = before.values[i];
    const oracle::Bounded& b = after.values[i];
    const bool same = a.value == b.value || (std::isnan(a.value) && std::isnan(b.value));
    EXPECT_TRUE(same || std::abs(a.value - b.value) <= a.error + b.error)
        << "page " << i << ": " << a.value << " and " << b.value;
  }
}

/// Runs both graphs over the sequence: scores must agree within the bounds of float32 rounding.
void expect_same_scores(const FlowGraph& before, const FlowGraph& after, int tokens) {
  constexpr int kSteps = 3;
  const Geometry& geometry = before.geometry;
  const Sequence sequence = random_sequence(geometry, tokens, kSteps, static_cast<uint32_t>(tokens));
  oracle::States states_before, states_after;
  const size_t query_size = static_cast<size_t>(geometry.group) * static_cast<size_t>(geometry.head_dim);
  for (int step = 0; step < kSteps; ++step) {
    const size_t held = static_cast<size_t>((tokens + step + 1) * geometry.head_dim);
    const oracle::Row row{.query = std::span(sequence.queries).subspan(static_cast<size_t>(step) * query_size, query_size),
                          .keys = std::span(sequence.keys).first(held),
                          .values = std::span(sequence.values).first(held),
                          .tokens = tokens + step + 1};
    const oracle::Result expected = oracle::run(before, row, states_before);
    const oracle::Result actual = oracle::run(after, row, states_after);
    ASSERT_LE(actual.scores.size(), expected.scores.size());  // equal selections are merged
    for (const oracle::Scores& of : actual.scores) expect_same(scores_of(expected, after, of.selection), of);
    const double scale = 1 / std::sqrt(static_cast<double>(geometry.head_dim));
    oracle::end_step(before, row, expected, scale, states_before);
    oracle::end_step(after, row, oracle::with_selected(after, actual, expected.selected), scale, states_after);
  }
}

/// The canonical form, whose nodes know where they come from.
FlowGraph traced_form(FlowGraph graph) {
  for (size_t i = 0; i < graph.nodes.size(); ++i) graph.nodes[i].traced = static_cast<NodeId>(i);
  return canonical_form(std::move(graph), 8);
}

class Passes : public ::testing::TestWithParam<std::filesystem::path> {};

TEST_P(Passes, GiveSoundPlansWhateverIsLeftOut) {
  const FlowGraph graph = testing::trace_by_name(GetParam());
  expect_sound(compile(graph).plan);
  expect_sound(compile(graph, {kAllPasses}).plan);
  for (const std::string& pass : kAllPasses) expect_sound(compile(graph, {{pass}}).plan);
}

TEST_P(Passes, KeepTheMeaning) {
  const FlowGraph graph = testing::trace_by_name(GetParam(), {.head_dim = 64, .group = 3});
  if (graph.selection() == kNoNode) return;
  for (const int tokens : {5, 100}) {
    expect_same_scores(graph, compile(graph).plan.graph, tokens);
    expect_same_scores(graph, compile(graph, {{"merge_common", "contract"}}).plan.graph, tokens);
    expect_same_scores(graph, traced_form(graph), tokens);
  }
}

INSTANTIATE_TEST_SUITE_P(Flows, Passes, ::testing::ValuesIn(testing::valid_flows()), testing::name_of_flow);

/// Random expressions over a few values; every operator that passes rewrite is drawn often.
std::string random_expression(std::mt19937& random, int depth) {
  const auto below = [&random](uint32_t n) { return random() % n; };
  if (depth == 0) {
    const char* leaves[] = {"c.a", "c.b", "p", "r", "1", "0", "-1", "2.5", "q:max('head')", "(-0.0)"};
    return leaves[below(10)];
  }
  const std::string a = random_expression(random, depth - 1);
  const std::string b = below(4) == 0 ? a : random_expression(random, depth - 1);
  switch (below(9)) {
    case 0:
      return "sluice.add(" + a + ", " + b + ")";
    case 1:
      return "sluice.sub(" + a + ", " + b + ")";
    case 2:
      return "sluice.mul(" + a + ", " + b + ")";
    case 3:
      return "sluice.div(" + a + ", 1)";
    case 4:
      return "sluice.maximum(" + a + ", " + b + ")";
    case 5:
      return "sluice.relu(" + a + ")";
    case 6:
      return "sluice.abs(" + a + ")";
    case 7:
      return "sluice.mul(-1, " + a + ")";
    default:
      return "sluice.where_lt(" + a + ", " + b + ", " + b + ", " + a + ")";
  }
}

TEST(RandomFlows, KeepTheirMeaningAndCompileSoundly) {
  std::mt19937 random(7);
  for (int i = 0; i < 150; ++i) {
    const std::string index = "local p, r = sluice.position(), sluice.random()\nlocal x = " + random_expression(random, 4) +
                              "\nlocal y = " + random_expression(random, 3) +
                              "\nlocal s = (x * c.a):sum('dim') + (y + c.b):max('dim')\nlocal t = s - s:mean('page')\n" +
                              "return (t * (x + c.a):max('dim'):softmax('page') + s):topk{k = 3, first = 1}";
    const FlowGraph graph = flow_of(index, "c.a, c.b = c.k:mean('token'), c.v:max('token')");
    const Plan plan = compile(graph).plan;
    expect_sound(plan);
    expect_same_scores(graph, plan.graph, 40);
    expect_same_scores(graph, traced_form(graph), 40);
    if (HasFailure()) FAIL() << index;
  }
}

TEST(RandomFlows, WithAfterStagesKeepTheirMeaning) {
  int kept = 0;
  for (uint64_t seed = 0; seed < 120; ++seed) {
    SCOPED_TRACE(seed);
    const FlowGraph graph = testing::random_after(seed);
    const Plan plan = compile(graph).plan;
    expect_sound(plan);
    expect_sound(compile(graph, {kAllPasses}).plan);
    if (graph.geometry.head_dim * graph.geometry.group <= 256) expect_same_scores(graph, plan.graph, 40);
    kept += plan.after.empty() ? 0 : 1;
    if (HasFailure()) FAIL() << to_text(graph);
  }
  EXPECT_GT(kept, 60);
}

}  // namespace
}  // namespace sluice
