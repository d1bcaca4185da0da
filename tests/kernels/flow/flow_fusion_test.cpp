#include "kernels/cpu/flow/fusion.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "kernels/cpu/flow/program.h"
#include "scripting/graph/text.h"
#include "tests/support/flow_judge.h"
#include "tests/support/graph_builder.h"
#include "tests/support/head_cache.h"

namespace sluice::testing {
namespace {

using cpu::flows::FusedForm;
using cpu::flows::Fusion;
using cpu::flows::Instruction;
using cpu::flows::Program;

Attributes along(Axis axis) { return GraphBuilder::along(axis); }
Attributes budget() { return GraphBuilder::budget(4, 1, 1); }

/// The same plan with every value wanted by later steps, so that none may be left out.
Plan without_fusion(Plan plan) {
  for (PlanStep& step : plan.index) {
    if (step.kind == StepKind::kPages) step.outputs = step.nodes;
  }
  return plan;
}

std::vector<Fusion> fusions_of(const Program& program) {
  std::vector<Fusion> fusions;
  for (const cpu::flows::ProgramStep& step : program.index) {
    for (const Instruction& instruction : step.pages) {
      if (instruction.fusion) fusions.push_back(*instruction.fusion);
    }
  }
  return fusions;
}

std::vector<float> scores_of(const Plan& plan, int tokens, uint64_t seed, bool specials) {
  const Geometry& geometry = plan.graph.geometry;
  const int max_pages = tokens / geometry.page + 1;
  const auto flow = cpu::compile_flow(plan, 1, 1);
  const auto scratch = flow->create_scratch(max_pages);
  std::mt19937_64 random(seed);
  std::vector<float> keys = random_numbers(static_cast<size_t>(tokens) * geometry.head_dim, random);
  std::vector<float> query = random_numbers(static_cast<size_t>(geometry.group) * geometry.head_dim, random);
  const float special[] = {INFINITY, -INFINITY, NAN, 0};
  for (float& key : keys) {
    if (specials && random() % 97 == 0) key = special[random() % 4];
  }
  for (float& number : query) {
    if (specials && random() % 31 == 0) number = special[seed % 2 == 0 ? 3 : random() % 4];
  }
  HeadCache cache(plan.layout, max_pages, seed);
  cache.append(*flow, *scratch, keys, keys);
  cpu::FlowRow row = cache.row(query.data());
  std::vector<float> scores(row.tokens.pages.size(), NAN);
  std::vector<int32_t> selected(row.tokens.pages.size());
  row.scores = scores.data();
  row.score_stride = static_cast<int64_t>(scores.size());
  flow->select(row, *scratch, selected.data());
  return scores;
}

/// Equal but for the rounding of sums; the same infinities and NaN.
void expect_same_scores(const FlowGraph& graph, int tokens, uint64_t seed, bool specials) {
  const Plan plan = compile(graph).plan;
  const Plan unfused = without_fusion(plan);
  ASSERT_TRUE(fusions_of(cpu::flows::lower(unfused)).empty());
  const std::vector<float> got = scores_of(plan, tokens, seed, specials);
  const std::vector<float> wanted = scores_of(unfused, tokens, seed, specials);
  float largest = 1;
  for (const float score : wanted) largest = std::isfinite(score) ? std::max(largest, std::fabs(score)) : largest;
  for (size_t page = 0; page < wanted.size(); ++page) {
    const bool same = std::isnan(wanted[page])   ? std::isnan(got[page])
                      : std::isinf(wanted[page]) ? got[page] == wanted[page]
                                                 : std::fabs(got[page] - wanted[page]) <= 1e-5F * largest;
    ASSERT_TRUE(same) << "seed " << seed << ", page " << page << ": " << got[page] << " is not " << wanted[page] << "\n"
                      << to_text(graph);
  }
}

/// sum over dim of bound(query * high, low * query).
FlowGraph bound_graph(const Geometry& geometry, Op bound, Op reduction, DataType type) {
  GraphBuilder b(geometry);
  const NodeId keys = b.cache(Op::kKey);
  b.field("high", b.cache(Op::kMax, {keys}, along(Axis::kToken)), type);
  b.field("low", b.cache(Op::kMin, {keys}, along(Axis::kToken)), type);
  const NodeId query = b.index(Op::kQuery);
  const NodeId high = b.index(Op::kMul, {query, b.read_field("high")});
  const NodeId low = b.index(Op::kMul, {b.read_field("low"), query});
  const NodeId bounds = b.index(reduction, {b.index(bound, {high, low})}, along(Axis::kDim));
  b.select(b.index(Op::kMax, {bounds}, along(Axis::kHead)), budget());
  return std::move(b.graph);
}

/// A reduction of a random tree over query, fields, keys and constants.
FlowGraph random_tree(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto one_of = [&](const auto& all) { return all[random() % std::size(all)]; };
  constexpr int kDims[] = {16, 20, 33, 64, 128, 200};
  constexpr DataType kTypes[] = {DataType::kBF16, DataType::kBF16, DataType::kF32, DataType::kE4M3};
  GraphBuilder b({.head_dim = one_of(kDims),
                  .group = static_cast<int>(1 + random() % 9),
                  .page = 16,
                  .kv = random() % 2 == 0 ? DataType::kBF16 : DataType::kF32});
  const NodeId keys = b.cache(Op::kKey);
  b.field("high", b.cache(Op::kMax, {keys}, along(Axis::kToken)), one_of(kTypes));
  b.field("mean", b.cache(Op::kMean, {keys}, along(Axis::kToken)), one_of(kTypes));
  b.field("norm", b.cache(Op::kL2Norm, {keys}, along(Axis::kDim)), one_of(kTypes));  // [token]
  Attributes number;
  number.value = 0.25;
  std::vector<NodeId> values = {b.index(Op::kQuery), b.read_field("high"), b.read_field("mean"),
                                b.index(Op::kConstant, {}, number)};
  const bool over_tokens = random() % 3 == 0;
  if (over_tokens) values.push_back(b.read_field("norm"));
  if (over_tokens && random() % 2 == 0) values.push_back(b.index(Op::kKey));
  constexpr Op kUnary[] = {Op::kRelu, Op::kSigmoid, Op::kSilu, Op::kLog, Op::kAbs, Op::kSqrt};
  constexpr Op kBinary[] = {Op::kAdd, Op::kSub, Op::kMul, Op::kMul, Op::kMaximum, Op::kMinimum};
  NodeId root = values[1];
  const auto steps = 1 + random() % 12;
  for (uint64_t step = 0; step < steps; ++step) {
    const NodeId other = one_of(values);
    const uint64_t kind = random() % 10;
    if (kind < 2) {
      root = b.index(one_of(kUnary), {root});
    } else if (kind < 3) {
      Attributes compare;
      compare.compare = static_cast<Compare>(random() % 6);
      root = b.index(Op::kWhere, {root, other, one_of(values), root}, compare);
    } else {
      root = random() % 2 == 0 ? b.index(one_of(kBinary), {root, other}) : b.index(one_of(kBinary), {other, root});
    }
    if (random() % 3 == 0) values.push_back(root);
  }
  constexpr Op kReductions[] = {Op::kSum, Op::kSum, Op::kMean, Op::kMax, Op::kMin, Op::kL2Norm};
  const auto shape = [&] { return b.graph.nodes[static_cast<size_t>(root)].shape; };
  if (random() % 4 == 0 && has_axis(shape(), Axis::kDim)) root = b.index(Op::kContract, {root, values[2]}, along(Axis::kDim));
  while (shape().size() > 1) root = b.index(one_of(kReductions), {root}, along(shape().back().axis));
  b.select(root, budget());
  return std::move(b.graph);
}

TEST(FlowFusion, QuestIsOneKernelThatReadsPages) {
  const Program program = cpu::flows::lower(compile(quest_graph({64, 4, 16, DataType::kBF16}, budget())).plan);
  const auto fusions = fusions_of(program);
  ASSERT_EQ(fusions.size(), 1U);
  EXPECT_EQ(fusions[0].kernel.form, FusedForm::kUpper);
  EXPECT_EQ(fusions[0].kernel.shared_rows, 4);
  EXPECT_EQ(fusions[0].absorbed.size(), 3U);
  size_t instructions = 0;
  for (const auto& step : program.index) instructions += step.pages.size();
  EXPECT_EQ(instructions, 2U);  // the kernel, and the maximum over heads
}

TEST(FlowFusion, ContractionReadsPages) {
  const auto fusions = fusions_of(cpu::flows::lower(compile(mean_score_graph({64, 4, 16, DataType::kBF16}, budget())).plan));
  ASSERT_EQ(fusions.size(), 1U);
  EXPECT_EQ(fusions[0].kernel.form, FusedForm::kDot);
}

TEST(FlowFusion, LooksNoDeeperThanItsKernelsDo) {
  // Each call once nested another, for as long as the chain was: thousands need a stack that threads may not have.
  GraphBuilder b({.head_dim = 64, .group = 1, .page = 8, .kv = DataType::kF32});
  NodeId x = b.index(Op::kKey);
  x = b.index(Op::kMax, {x}, along(Axis::kToken));
  for (int i = 0; i < 4000; ++i) x = b.index(i % 2 == 0 ? Op::kAbs : Op::kSqrt, {x});
  b.select(b.index(Op::kMean, {x}, along(Axis::kDim)), budget());
  const std::vector<Fusion> fusions = fusions_of(cpu::flows::lower(compile(b.graph).plan));
  ASSERT_EQ(fusions.size(), 1U);
  EXPECT_EQ(fusions[0].absorbed.size(), static_cast<size_t>(cpu::flows::Expression::kMostSteps));
}

TEST(FlowFusion, KeepsWhatIsReadTwice) {
  GraphBuilder b({64, 4, 16, DataType::kBF16});
  b.field("mean", b.cache(Op::kMean, {b.cache(Op::kKey)}, along(Axis::kToken)));
  const NodeId product = b.index(Op::kMul, {b.index(Op::kQuery), b.read_field("mean")});
  const NodeId largest = b.index(Op::kMax, {product}, along(Axis::kDim));
  const NodeId smallest = b.index(Op::kMin, {product}, along(Axis::kDim));
  const NodeId width = b.index(Op::kSub, {largest, smallest});
  b.select(b.index(Op::kMax, {width}, along(Axis::kHead)), budget());
  EXPECT_TRUE(fusions_of(cpu::flows::lower(compile(b.graph).plan)).empty());
  EXPECT_EQ(judge(b.graph, {.tokens = 333}).fault, "");
}

TEST(FlowFusion, BoundsEqualUnfused) {
  uint64_t seed = 0;
  for (const Op bound : {Op::kMaximum, Op::kMinimum}) {
    for (const Op reduction : {Op::kSum, Op::kMean}) {
      for (const DataType type : {DataType::kBF16, DataType::kF32}) {
        for (const int group : {1, 3, 4, 8, 11}) {
          for (const int dim : {16, 20, 64, 130}) {
            const FlowGraph graph = bound_graph({dim, group, 16, DataType::kF32}, bound, reduction, type);
            const auto fusions = fusions_of(cpu::flows::lower(compile(graph).plan));
            ASSERT_EQ(fusions.size(), 1U);
            ASSERT_EQ(fusions[0].kernel.form, bound == Op::kMaximum ? FusedForm::kUpper : FusedForm::kLower);
            ++seed;
            expect_same_scores(graph, 1000, seed, seed % 3 == 0);
          }
        }
      }
    }
  }
}

TEST(FlowFusion, RandomTreesEqualUnfusedAndOracle) {
  constexpr uint64_t kTrees = 600;
  size_t fused = 0;
  for (uint64_t seed = 0; seed < kTrees; ++seed) {
    const FlowGraph graph = random_tree(seed);
    fused += fusions_of(cpu::flows::lower(compile(graph).plan)).empty() ? 0 : 1;
    const int tokens = static_cast<int>(1 + seed * 53 % 400);  // most have a short last page
    expect_same_scores(graph, tokens, seed, seed % 4 == 0);
    if (HasFatalFailure()) return;
    if (seed % 3 == 0) {
      ASSERT_EQ(judge(graph, {.tokens = tokens, .seed = seed, .specials = seed % 4 == 0}).fault, "") << to_text(graph);
    }
  }
  EXPECT_GT(fused, kTrees / 2);
}

}  // namespace
}  // namespace sluice::testing
