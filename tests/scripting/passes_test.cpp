// What each pass of the compiler does, and what it leaves.
#include <gtest/gtest.h>

#include <cmath>

#include "scripting/graph/ops.h"
#include "scripting/graph/plan.h"
#include "scripting/graph/text.h"
#include "scripting/graph/verify.h"
#include "tests/scripting/planned_flow.h"

namespace sluice {
namespace {

using testing::count;
using testing::flow_of;
using testing::kAllPasses;
using testing::plan_of;

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

}  // namespace
}  // namespace sluice
