#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "kernels/cuda/codegen/describe.h"
#include "kernels/cuda/codegen/kernels.h"
#include "kernels/cuda/codegen/refusal.h"
#include "scripting/graph/plan.h"
#include "tests/support/graph_builder.h"

// The CUDA source of flows is written without CUDA, and by a server while others wait.

namespace sluice::testing {
namespace {

using cuda::codegen::FlowLayout;
using cuda::codegen::generate;

constexpr Geometry kGeometry{.head_dim = 64, .group = 4, .page = 16, .kv = DataType::kBF16};

NodeId reduced(GraphBuilder& b, Op op, NodeId x, Axis axis) { return b.index(op, {x}, GraphBuilder::along(axis)); }
NodeId number(GraphBuilder& b, double value) {
  Attributes attributes;
  attributes.value = value;
  return b.index(Op::kConstant, {}, attributes);
}

/// Bytes of the longest source of a flow, a node.
size_t bytes_a_node(GraphBuilder& b, NodeId score) {
  b.select(score, GraphBuilder::budget(4, 1, 1));
  const Plan plan = compile(b.graph).plan;
  const auto source = generate(FlowLayout(plan));
  return std::max(source.text.size(), source.attending_text.size()) / plan.graph.nodes.size();
}

TEST(FlowSource, NamesAUnionThatStandsTwiceOnce) {
  const auto source = [](bool twice) {
    GraphBuilder b(kGeometry);
    const NodeId scores[] = {b.index(Op::kPosition), b.index(Op::kRandom)};
    NodeId joined = b.index(Op::kUnion, {b.index(Op::kTopK, {scores[0]}, GraphBuilder::budget(4)),
                                         b.index(Op::kTopK, {scores[1]}, GraphBuilder::budget(5))});
    for (int i = 0; twice && i < 100; ++i) joined = b.index(Op::kUnion, {joined, joined});
    b.graph.attend_to(joined);
    return generate(FlowLayout(compile(b.graph, {{"simplify", "merge_common", "flatten_unions"}}).plan)).text.size();
  };
  EXPECT_LT(source(true), source(false) + 200) << "but for the numbers of nodes they are the same";
}

TEST(FlowSource, DescribesUnionsThatShareOperandsInTime) {
  GraphBuilder b(kGeometry);
  NodeId older = b.index(Op::kTopK, {b.index(Op::kPosition)}, GraphBuilder::budget(4));
  NodeId newer = b.index(Op::kWindow, {}, GraphBuilder::budget(0, 1, 1));
  for (int i = 0; i < 3000; ++i) {
    const NodeId joined = b.index(Op::kUnion, {older, newer});
    older = newer;
    newer = joined;
  }
  b.graph.attend_to(newer);
  EXPECT_NE(cuda::codegen::describe(compile(b.graph, {{"flatten_unions"}}).plan, {}).find("index_row"), std::string::npos);
}

TEST(FlowSource, HasLongKernelsOnce) {
  GraphBuilder b(kGeometry);
  Attributes kernel = GraphBuilder::along(Axis::kPage);
  kernel.kernel.assign(129, 0.5F);
  NodeId score = b.index(Op::kPosition);
  for (int i = 0; i < 1000; ++i) score = b.index(Op::kConv1d, {score}, kernel);
  EXPECT_LT(bytes_a_node(b, score), 5'000U);
}

TEST(FlowSource, ComputesWhatManyKernelsReadOfTheQueryOnce) {
  GraphBuilder b(kGeometry);
  b.field("centre", b.cache(Op::kMean, {b.cache(Op::kKey)}, GraphBuilder::along(Axis::kToken)));
  NodeId of_query = reduced(b, Op::kMax, b.index(Op::kQuery), Axis::kHead);
  for (int i = 0; i < 500; ++i) of_query = reduced(b, Op::kSoftmax, of_query, Axis::kDim);
  const NodeId bound = reduced(b, Op::kMean, of_query, Axis::kDim);
  NodeId sum = bound;
  for (int i = 0; i < 400; ++i) {
    const NodeId product = b.index(Op::kMul, {b.read_field("centre"), sum});
    sum = reduced(b, Op::kMean, reduced(b, Op::kMax, b.index(Op::kAdd, {product, bound}), Axis::kDim), Axis::kPage);
  }
  EXPECT_LT(bytes_a_node(b, b.index(Op::kMul, {b.index(Op::kPosition), sum})), 5'000U);
}

TEST(FlowSource, KeepsWhatManyRead) {
  GraphBuilder b(kGeometry);
  b.field("centre", b.cache(Op::kMean, {b.cache(Op::kKey)}, GraphBuilder::along(Axis::kToken)));
  NodeId x = b.index(Op::kQuery);
  for (int i = 0; i < 240; ++i) x = b.index(Op::kExp, {x});
  NodeId sum = number(b, 0);
  for (int i = 0; i < 500; ++i) {
    const NodeId scaled = b.index(Op::kMul, {b.index(Op::kMul, {b.read_field("centre"), x}), number(b, i + 0.5)});
    sum = b.index(Op::kAdd, {sum, reduced(b, Op::kMax, reduced(b, Op::kMax, scaled, Axis::kDim), Axis::kHead)});
  }
  EXPECT_LT(bytes_a_node(b, sum), 5'000U);
}

TEST(FlowSource, IsRefusedWhereACompilerWouldTakeMinutes) {
  const auto refused = [](int phases) {
    GraphBuilder b(kGeometry);
    b.field("centre", b.cache(Op::kMean, {b.cache(Op::kKey)}, GraphBuilder::along(Axis::kToken)));
    NodeId sum = number(b, 1);
    for (int i = 0; i < phases; ++i) {
      const NodeId product = b.index(Op::kMul, {b.read_field("centre"), sum});
      sum = reduced(b, Op::kMean, reduced(b, Op::kMax, product, Axis::kDim), Axis::kPage);
    }
    b.select(b.index(Op::kMul, {b.index(Op::kPosition), sum}), GraphBuilder::budget(4));
    const auto refusal = cuda::codegen::refusal_of(compile(b.graph).plan);
    return refusal ? refusal->what : "";
  };
  EXPECT_EQ(refused(10), "");
  EXPECT_NE(refused(200).find("kB of CUDA source; device \"cuda\" compiles at most 131 kB for a flow"), std::string::npos)
      << refused(200);
}

TEST(FlowSource, HoldsRowsUnlessASelectionInsistsOnItsLastStep) {
  const auto source = [](TopKMethod method, bool joined) {
    FlowGraph graph = quest_graph(kGeometry, GraphBuilder::budget(4, 1, 1));
    Node& selection = graph.nodes[static_cast<size_t>(graph.selection())];
    selection.attributes.method = method;
    if (joined) {
      Node window = selection;
      window.op = Op::kWindow;
      window.inputs.clear();
      window.attributes = own_attributes(Op::kWindow, GraphBuilder::budget(0, 9, 0));
      graph.nodes.push_back(window);
      const NodeId leaf = static_cast<NodeId>(graph.nodes.size()) - 1;
      window.op = Op::kUnion;
      window.inputs = {graph.selection(), leaf};
      window.attributes = {};
      graph.nodes.push_back(window);
      graph.attend_to(leaf + 1);
    }
    return generate(FlowLayout(compile(graph).plan));
  };
  for (const bool joined : {false, true}) {
    const auto any = source(TopKMethod::kAuto, joined);
    const auto radix = source(TopKMethod::kRadix, joined);
    EXPECT_EQ(any.row.name, "index_row");
    EXPECT_EQ(any.text, radix.text);
    EXPECT_EQ(any.attending_text, radix.attending_text);
    EXPECT_EQ(any.cluster_attending_text, radix.cluster_attending_text);
    const auto gvr = source(TopKMethod::kGvr, joined);
    EXPECT_EQ(gvr.row.name + gvr.attending.name + gvr.cluster_attending.name, "");
    EXPECT_NE(gvr.why_not_whole_rows.find("is to begin with what the last step took"), std::string::npos)
        << gvr.why_not_whole_rows;
    EXPECT_EQ(gvr.index.size(), any.index.size());
  }
}

TEST(FlowSource, IsWhatItWasForFewReaders) {
  GraphBuilder b(kGeometry);
  NodeId x = b.index(Op::kPosition);
  for (int i = 0; i < 200; ++i) x = b.index(Op::kExp, {x});
  b.select(x, GraphBuilder::budget(4));
  const Plan plan = compile(b.graph).plan;
  const FlowLayout layout(plan);
  EXPECT_EQ(std::count(layout.kept.begin(), layout.kept.end(), true), 0);
}

}  // namespace
}  // namespace sluice::testing
