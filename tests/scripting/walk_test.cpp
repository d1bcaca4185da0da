#include "scripting/graph/walk.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "scripting/graph/selections.h"
#include "tests/support/graph_builder.h"

namespace sluice::testing {
namespace {

/// Every union joins the two before it, so that paths to the leaves double from union to union or nearly so.
FlowGraph ladder(int unions) {
  GraphBuilder b(Geometry{});
  NodeId older = b.index(Op::kTopK, {b.index(Op::kPosition)}, GraphBuilder::budget(4));
  NodeId newer = b.index(Op::kWindow, {}, GraphBuilder::budget(0, 1, 1));
  for (int i = 0; i < unions; ++i) {
    const NodeId joined = b.index(Op::kUnion, {older, newer});
    older = newer;
    newer = joined;
  }
  b.graph.attend_to(newer);
  return std::move(b.graph);
}

TEST(LeafSelections, LookAtSharedUnionsOnce) {
  EXPECT_EQ(leaf_selections(ladder(3000)), (std::vector<NodeId>{1, 2}));
  EXPECT_EQ(leaf_selections(ladder(0)), (std::vector<NodeId>{2}));
}

TEST(NeededFor, FollowsOperandsAndFields) {
  GraphBuilder b(Geometry{});
  const NodeId keys = b.cache(Op::kKey);
  const NodeId mean = b.cache(Op::kMean, {keys}, GraphBuilder::along(Axis::kToken));
  const NodeId largest = b.cache(Op::kMax, {keys}, GraphBuilder::along(Axis::kToken));
  b.field("mean", mean);
  b.field("largest", largest);
  const NodeId read = b.read_field("largest");
  const NodeId other = b.read_field("mean");
  const std::vector<bool> needed = needed_for(b.graph, read);
  EXPECT_EQ(needed.size(), b.graph.nodes.size());
  for (const NodeId id : {keys, largest, read}) EXPECT_TRUE(needed[static_cast<size_t>(id)]);
  for (const NodeId id : {mean, other}) EXPECT_FALSE(needed[static_cast<size_t>(id)]);
}

TEST(NeededFor, TakesLongChainsAndSharedOperands) {
  GraphBuilder b(Geometry{});
  NodeId x = b.index(Op::kPosition);
  for (int i = 0; i < 4000; ++i) x = b.index(Op::kAdd, {x, x});
  const std::vector<bool> needed = needed_for(b.graph, x);
  EXPECT_EQ(std::count(needed.begin(), needed.end(), true), 4001);
  const std::vector<bool> nothing = needed_for(b.graph, kNoNode);
  EXPECT_EQ(std::count(nothing.begin(), nothing.end(), true), 0);
}

}  // namespace
}  // namespace sluice::testing
