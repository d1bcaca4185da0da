#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <set>

#include "kernels/reference/oracle.h"
#include "scripting/graph/ops.h"
#include "scripting/graph/plan.h"
#include "scripting/graph/text.h"
#include "scripting/graph/verify.h"
#include "tests/scripting/flow_files.h"
#include "tests/support/random_flow.h"

namespace sluice {
namespace {

const std::vector<std::string> kAllPasses = {
    "remove_unused",  "weigh_summaries", "fold_constants", "simplify",        "merge_common",
    "flatten_unions", "remove_dead",     "contract",       "remove_products", "fuse"};

FlowGraph flow_of(const std::string& index, const std::string& cache = "") {
  return trace("local flow = sluice.flow{name = \"x\"}\nfunction flow.cache(c) " + cache + " end\nfunction flow.index(q, c) " +
                   index + " end\nreturn flow",
               "x.lua");
}

Plan plan_of(const std::string& index, const std::string& cache = "", const std::vector<std::string>& disabled = {}) {
  return compile(flow_of(index, cache), {disabled}).plan;
}

int count(const FlowGraph& graph, Op op) {
  return static_cast<int>(
      std::count_if(graph.nodes.begin(), graph.nodes.end(), [op](const Node& node) { return node.op == op; }));
}

std::vector<StepKind> kinds(const Plan& plan) {
  std::vector<StepKind> kinds;
  for (const PlanStep& step : plan.index) kinds.push_back(step.kind);
  return kinds;
}

TEST(FoldConstants, ComputesNumbersInFloat32) {
  const FlowGraph graph = plan_of("return (sluice.position() * (sluice.sqrt(2) + 0.1)):topk{k = 1}").graph;
  ASSERT_EQ(count(graph, Op::kConstant), 1);
  for (const Node& node : graph.nodes) {
    if (node.op == Op::kConstant) {
      EXPECT_EQ(node.attributes.value, std::sqrt(2.0f) + 0.1f);
    }
  }
}

TEST(FoldConstants, LeavesNanToTheDevice) {
  const FlowGraph graph = plan_of("return (sluice.position() * sluice.sqrt(-1)):topk{k = 1}").graph;
  EXPECT_EQ(count(graph, Op::kSqrt), 1);
}

TEST(FoldConstants, LeavesToTheDeviceWhatDevicesRoundTheirOwnWay) {
  for (const std::string expression : {"sluice.exp(1)", "sluice.log(10.9)", "sluice.sigmoid(-100)", "sluice.silu(2)",
                                       "sluice.relu(-0.0)", "sluice.maximum(-0.0, 0.0)", "sluice.minimum(0.0, -0.0)"}) {
    const FlowGraph graph = plan_of("return (sluice.position() * " + expression + "):topk{k = 1}").graph;
    EXPECT_GT(graph.nodes.size(), 4u) << expression;
  }
  for (const std::string expression :
       {"sluice.relu(-3)", "sluice.relu(0.0)", "sluice.maximum(-0.0, -0.0)", "sluice.minimum(3, 4)"}) {
    const FlowGraph graph = plan_of("return (sluice.position() * " + expression + "):topk{k = 1}").graph;
    EXPECT_EQ(graph.nodes.size(), 4u) << expression;
  }
}

TEST(Simplify, DropsWhatChangesNoBit) {
  const std::string plain = to_text(plan_of("return sluice.position():topk{k = 1}").graph);
  for (const std::string expression : {"p * 1", "1 * p", "p / 1", "p - 0", "-(-p)", "p:maximum(p)", "p:minimum(p)"}) {
    EXPECT_EQ(to_text(plan_of("local p = sluice.position() return (" + expression + "):topk{k = 1}").graph), plain) << expression;
  }
  EXPECT_EQ(count(plan_of("return sluice.position():relu():relu():topk{k = 1}").graph, Op::kRelu), 1);
  EXPECT_EQ(count(plan_of("local s = c.k:max('token'):reshape{'page', {'sub', 8}, {'dim', 8}} return "
                          "s:transpose():transpose():max('sub', 'dim'):topk{k = 1}")
                      .graph,
                  Op::kTranspose),
            0);
  EXPECT_EQ(
      count(plan_of(
                "local s = c.k:max('token'):reshape{'page', {'sub', 64}}:reshape{'page', 'dim'} return s:max('dim'):topk{k = 1}")
                .graph,
            Op::kReshape),
      0);
}

TEST(Simplify, KeepsWhatInfinitiesAndZerosWouldShow) {
  const size_t plain = plan_of("return sluice.position():topk{k = 1}").graph.nodes.size();
  for (const std::string expression : {"p * 0", "0 * p", "p + 0", "p - p", "p / p", "0 - p"}) {
    EXPECT_GT(plan_of("local p = sluice.position() return (" + expression + "):topk{k = 1}").graph.nodes.size(), plain)
        << expression;
  }
}

TEST(Simplify, TurnsKroneckerWithoutPairIntoProduct) {
  const FlowGraph graph =
      plan_of("return sluice.kron(c.k:max('token'), q:max('dim', 'head'), 'dim'):max('dim'):topk{k = 1}").graph;
  EXPECT_EQ(count(graph, Op::kKron), 0);
  EXPECT_EQ(count(graph, Op::kMul), 1);
}

TEST(MergeCommon, ComputesOnceWhatIsWrittenTwice) {
  const FlowGraph graph =
      plan_of("return (q:dot(c.m):max('head') + q:dot(c.m):max('head')):topk{k = 1}", "c.m = c.k:mean('token')").graph;
  EXPECT_EQ(count(graph, Op::kContract), 1);
  EXPECT_EQ(count(graph, Op::kField), 1);
}

TEST(MergeCommon, SeesThroughTheOrderOfCommutativeOperands) {
  const FlowGraph graph = plan_of("local a, b = sluice.position(), sluice.random() return (a * b - b * a):topk{k = 1}").graph;
  EXPECT_EQ(count(graph, Op::kMul), 1);
  EXPECT_EQ(
      count(plan_of("local a, b = sluice.position(), sluice.random() return ((a - b) * (b - a)):topk{k = 1}").graph, Op::kSub),
      2);
}

TEST(MergeCommon, KeepsTheOrderThatDecidesBetweenZeros) {
  for (const std::string op : {"maximum", "minimum"}) {
    const FlowGraph graph = plan_of("local a, b = sluice.position(), -sluice.position() return (1 / a:" + op +
                                    "(b) - 1 / b:" + op + "(a)):topk{k = 1}")
                                .graph;
    EXPECT_EQ(count(graph, op == "maximum" ? Op::kMaximum : Op::kMinimum), 2);
  }
}

TEST(MergeCommon, TellsZeroFromMinusZero) {
  const FlowGraph graph = plan_of("local p = sluice.position() return (p / 0.0 + p / -0.0):topk{k = 1}").graph;
  EXPECT_EQ(count(graph, Op::kConstant), 2);
}

TEST(FlattenUnions, NamesEverySelectionOnce) {
  const std::string ladder =
      "local a, b = sluice.position():topk{k = 1}, sluice.window{last = 1}\n"
      "for i = 1, 2000 do a, b = b, sluice.union(a, b) end return b";
  const FlowGraph graph = plan_of(ladder).graph;
  EXPECT_EQ(count(graph, Op::kUnion), 1);
  EXPECT_EQ(graph.nodes.size(), 4u);
  EXPECT_EQ(graph.nodes[static_cast<size_t>(graph.selection())].traced, flow_of(ladder).selection());
  EXPECT_EQ(count(plan_of(ladder, "", {"flatten_unions"}).graph, Op::kUnion), 2000);
  EXPECT_EQ(count(plan_of("local a, b = sluice.window{first = 1}, sluice.window{last = 2} local c = sluice.union(a, b) "
                          "return sluice.union(sluice.union(c, a), sluice.union(sluice.window{last = 1, first = 3}, c))")
                      .graph,
                  Op::kUnion),
            2);
}

TEST(FlattenUnions, LeavesUnionsThatAreNoMoreThanNeeded) {
  const std::string index =
      "local s = sluice.position() return sluice.union(sluice.topk(s, {k = 2}), sluice.union(sluice.topk(-s, {k = 1}), "
      "sluice.window{last = 1}))";
  EXPECT_EQ(to_text(plan_of(index)), to_text(plan_of(index, "", {"flatten_unions"})));
}

TEST(RemoveDead, DropsUnreadFieldsStatesAndOperators) {
  const FlowGraph graph = plan_of("local unused = q:dot(c.a) c.s:save(c.s + 1) return sluice.position():topk{k = 1}",
                                  "c.a = c.k:mean('token') c.b = c.k:max('token') c.s = sluice.cfill(0)")
                              .graph;
  EXPECT_TRUE(graph.fields.empty());
  // The state reads itself only, and no selection reads it.
  EXPECT_TRUE(graph.states.empty());
  EXPECT_TRUE(graph.saves.empty());
  EXPECT_EQ(graph.nodes.size(), 2u);
}

TEST(RemoveDead, KeepsStatesThatReachTheSelectionThroughOthers) {
  const FlowGraph graph = plan_of("c.b:save(c.a:load() * 2) c.a:save(c.a + 1) return sluice.topk(c.b:load(), {k = 1})",
                                  "c.a = sluice.cfill(0) c.b = sluice.cfill(0)")
                              .graph;
  EXPECT_EQ(graph.states.size(), 2u);
  EXPECT_EQ(graph.saves.size(), 2u);
}

TEST(Contract, ReplacesSumsOfProducts) {
  const FlowGraph graph = plan_of("return (q * c.m):sum('dim'):max('head'):topk{k = 1}", "c.m = c.k:mean('token')").graph;
  EXPECT_EQ(count(graph, Op::kContract), 1);
  EXPECT_EQ(count(graph, Op::kMul), 0);
}

TEST(Contract, LeavesProductsThatOthersRead) {
  const FlowGraph graph =
      plan_of("local p = q * c.m return (p:sum('dim') + p:max('dim')):max('head'):topk{k = 1}", "c.m = c.k:mean('token')").graph;
  EXPECT_EQ(count(graph, Op::kContract), 0);
}

TEST(Contract, LeavesThePageAxisAndOneSidedSums) {
  EXPECT_EQ(count(plan_of("local p = sluice.position() return (p * (p * sluice.random()):sum('page')):topk{k = 1}").graph,
                  Op::kContract),
            0);
  EXPECT_EQ(count(plan_of("return (q * sluice.position()):sum('dim'):max('head'):topk{k = 1}").graph, Op::kContract), 0);
}

TEST(Fuse, PutsPageLocalWorkIntoOneStep) {
  const Plan plan = plan_of("return (q * c.hi):maximum(q * c.lo):sum('dim'):max('head'):topk{k = 4}",
                            "c.hi, c.lo = c.k:max('token'), c.k:min('token')");
  EXPECT_EQ(kinds(plan), (std::vector{StepKind::kQuery, StepKind::kPages, StepKind::kSelect}));
  EXPECT_EQ(plan.index[1].outputs.size(), 1u);
}

TEST(Fuse, StartsANewPhaseAfterRowWideOperators) {
  const Plan plan = plan_of(
      "local s = q:dot(c.m):max('head') local mean = s:mean('page') return sluice.topk((s - mean * 2):relu():softmax('page'), {k "
      "= 4})",
      "c.m = c.k:mean('token')");
  EXPECT_EQ(kinds(plan), (std::vector{StepKind::kQuery, StepKind::kPages, StepKind::kRow, StepKind::kQuery, StepKind::kPages,
                                      StepKind::kRow, StepKind::kSelect}));
}

TEST(Fuse, ReadsSourcesAgainRatherThanStoringThem) {
  const Plan plan = plan_of("local s = q:dot(c.m):softmax('page'):sum('head') return (s * q:max('head'):dot(c.m)):topk{k = 4}",
                            "c.m = c.k:mean('token')");
  for (const PlanStep& step : plan.index) {
    for (const NodeId id : step.outputs) EXPECT_NE(plan.graph.nodes[static_cast<size_t>(id)].op, Op::kField);
  }
}

TEST(Fuse, SavesAfterEveryLoad) {
  const Plan plan = plan_of("c.a:save(c.b:load() + 1) c.b:save(c.a:load() * 2) return sluice.topk(c.a + c.b, {k = 1})",
                            "c.a = sluice.cfill(1) c.b = sluice.cfill(2)");
  EXPECT_EQ(kinds(plan), (std::vector{StepKind::kPages, StepKind::kSelect, StepKind::kSave, StepKind::kSave}));
}

/// A flow that computes `count` tensors [page, sub numbers] before a reduction over the pages, and reads them after it.
std::string keeps_for_later(int count, int numbers) {
  return "local s, xs = 0, {}\nfor i = 1, " + std::to_string(count) + " do\nxs[i] = sluice.fill(i, {'page', {'sub', " +
         std::to_string(numbers) +
         "}}):exp() * c.k:max('token', 'dim')\ns = s + xs[i]:max('sub') end\nlocal m, t = s:mean('page'), 0\nfor i = 1, " +
         std::to_string(count) + " do t = t + (xs[i] * m):max('sub') end\nreturn sluice.topk(t, {k = 1})";
}

TEST(Fuse, BoundsWhatIsKeptForEveryPage) {
  EXPECT_NO_THROW(compile(flow_of(keeps_for_later(2, 4096))));
  EXPECT_NO_THROW(verify(flow_of(keeps_for_later(5, 4096))));
  try {
    compile(flow_of(keeps_for_later(5, 4096)));
    FAIL() << "accepted";
  } catch (const FlowError& error) {
    EXPECT_EQ(error.where(), (SourceLocation{"x.lua", 5})) << error.what();
    EXPECT_NE(error.message().find("more than 16384 numbers a page"), std::string::npos) << error.message();
  }
}

/// A flow in which each of `phases` phases reads the same tensor of 16384 numbers a page.
std::string reads_again(int phases) {
  return "local f, x = sluice.fill(2, {'page', {'sub', 16384}}), c.k:max('token', 'dim'):mean('page')\nfor i = 1, " +
         std::to_string(phases) + " do x = (f * x):mean('sub'):mean('page') end\nreturn (sluice.position() * x):topk{k = 4}";
}

TEST(Fuse, MayReadAgainWhatTheScriptWasGrantedOnce) {
  for (const int phases : {1, 85, 86, 110, 127}) {
    const FlowGraph graph = flow_of(reads_again(phases));
    const Plan plan = compile(graph).plan;
    EXPECT_EQ(count(plan.graph, Op::kFill), phases);
    EXPECT_NO_THROW(verify_planned(plan.graph));
  }
  EXPECT_THROW(flow_of(reads_again(128)), FlowError);
}

TEST(Fuse, StopsCopyingWhereAGraphIsFull) {
  // One operator fewer than a graph may have, and every phase reads two sources.
  const std::string index =
      "local p, x = sluice.position(), sluice.random():mean('page')\n"
      "for i = 1, 1360 do x = (p * x):mean('page'):relu() end\nreturn (p * x):topk{k = 4}";
  const FlowGraph graph = flow_of(index);
  ASSERT_LE(graph.nodes.size(), 4096u);
  const Plan plan = compile(graph).plan;
  EXPECT_EQ(plan.graph.nodes.size(), 4096u);
  EXPECT_NO_THROW(verify_planned(plan.graph));
}

TEST(Verify, GrantsAScriptNoMoreWorkThanAPlan) {
  FlowGraph graph = compile(flow_of(reads_again(127))).plan.graph;
  EXPECT_THROW(verify(graph), FlowError);
  for (Node& node : graph.nodes) {
    if (node.op == Op::kMean && node.attributes.axis == Axis::kSub) node.shape.push_back({Axis::kSub, 3});
  }
  EXPECT_THROW(verify_planned(graph), FlowError) << "of a plan, too, all else is checked";
}

TEST(Compile, RefusesToLeaveOutUnknownPasses) {
  EXPECT_THROW(compile(flow_of("return sluice.window{last = 1}"), {{"fold"}}), InputError);
}

TEST(Compile, ReportsEveryPass) {
  const Compilation compilation = compile(flow_of("return (sluice.position() * 1):topk{k = 1}"), {{"simplify"}});
  std::vector<std::string> names;
  for (const PassReport& report : compilation.passes) {
    names.push_back(report.name);
    EXPECT_EQ(report.enabled, report.name != "simplify");
    EXPECT_GE(report.microseconds, 0);
  }
  EXPECT_EQ(names, kAllPasses);
  EXPECT_EQ(count(compilation.plan.graph, Op::kMul), 1);
}

TEST(PageLayout, AlignsEveryPartTo64Bytes) {
  const Plan plan = plan_of("return (q:dot(c.a) + c.n):max('head'):topk{k = 1}",
                            "c.n = c.v:l2norm('dim'):mean('token') c.a = c.k:mean('token')");
  const PageLayout& layout = plan.layout;
  EXPECT_EQ(layout.key_offset, 0u);
  EXPECT_EQ(layout.value_offset, 16u * 64 * 2);
  EXPECT_EQ(layout.field_offsets, (std::vector<size_t>{4096, 4160}));
  EXPECT_EQ(layout.bytes, 4160u + 128);
  const PageLayout odd = page_layout({.head_dim = 5, .group = 1, .page = 8, .kv = DataType::kE4M3}, {});
  EXPECT_EQ(odd.value_offset, 64u);
  EXPECT_EQ(odd.bytes, 128u);
}

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
  if (plan.attend.is_plain()) EXPECT_EQ(last_select, plan.graph.selection());
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
