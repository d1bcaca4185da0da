#include "scripting/graph/shapes.h"

#include <gtest/gtest.h>

#include "scripting/graph/verify.h"

namespace sluice {
namespace {

constexpr Dimension kPages{Axis::kPage, kDynamic};

/// A graph whose first nodes have the given shapes, to infer further nodes over.
FlowGraph operands(const std::vector<Shape>& shapes) {
  FlowGraph graph;
  graph.name = "x";
  for (const Shape& shape : shapes) graph.nodes.push_back({Op::kFill, Stage::kIndex, {}, shape, {}, {"x.lua", 1}});
  return graph;
}

std::string inferred(Op op, const std::vector<Shape>& shapes, Attributes attributes = {}, Shape declared = {}) {
  const FlowGraph graph = operands(shapes);
  Node node{op, Stage::kIndex, {}, std::move(declared), std::move(attributes), {"x.lua", 7}};
  for (size_t i = 0; i < shapes.size(); ++i) node.inputs.push_back(static_cast<NodeId>(i));
  try {
    return to_string(infer_shape(graph, node));
  } catch (const FlowError& error) {
    EXPECT_EQ(error.where().line, 7);
    return "refused";
  }
}

Attributes along(Axis axis) {
  Attributes attributes;
  attributes.axis = axis;
  return attributes;
}

Attributes grouped(Axis axis, int group) {
  Attributes attributes = along(axis);
  attributes.group = group;
  return attributes;
}

const Shape kScalar = {};
const Shape kHeadDim = {{Axis::kHead, 4}, {Axis::kDim, 64}};
const Shape kPageDim = {kPages, {Axis::kDim, 64}};
const Shape kPageTokenDim = {kPages, {Axis::kToken, 16}, {Axis::kDim, 64}};
const Shape kPageOnly = {kPages};

TEST(Shapes, BroadcastsByName) {
  EXPECT_EQ(inferred(Op::kMul, {kHeadDim, kPageDim}), "[page B, head 4, dim 64]");
  EXPECT_EQ(inferred(Op::kMul, {kPageDim, kHeadDim}), "[page B, dim 64, head 4]");
  EXPECT_EQ(inferred(Op::kAdd, {kScalar, kPageOnly}), "[page B]");
  EXPECT_EQ(inferred(Op::kWhere, {kPageOnly, kScalar, kHeadDim, kScalar}), "[page B, head 4, dim 64]");
}

TEST(Shapes, RefusesDifferentExtentsOfOneAxis) {
  EXPECT_EQ(inferred(Op::kAdd, {kPageDim, {{Axis::kDim, 32}}}), "refused");
  EXPECT_EQ(inferred(Op::kAdd, {kPageDim, {{Axis::kDim, 1}}}), "refused");
}

TEST(Shapes, ReductionsDropTheirAxis) {
  EXPECT_EQ(inferred(Op::kMax, {kPageTokenDim}, along(Axis::kToken)), "[page B, dim 64]");
  EXPECT_EQ(inferred(Op::kSum, {kPageOnly}, along(Axis::kPage)), "[]");
  EXPECT_EQ(inferred(Op::kMean, {kPageDim}, along(Axis::kHead)), "refused");
  EXPECT_EQ(inferred(Op::kMean, {kScalar}, along(Axis::kPage)), "refused");
}

TEST(Shapes, InterleavedReductionsMakeSub) {
  EXPECT_EQ(inferred(Op::kMeanInterleave, {kPageTokenDim}, grouped(Axis::kToken, 4)), "[page B, sub 4, dim 64]");
  EXPECT_EQ(inferred(Op::kMaxInterleave, {{{Axis::kSub, 8}}}, grouped(Axis::kSub, 2)), "[sub 4]");
  EXPECT_EQ(inferred(Op::kMeanInterleave, {kPageTokenDim}, grouped(Axis::kToken, 3)), "refused");
  EXPECT_EQ(inferred(Op::kMeanInterleave, {kPageTokenDim}, grouped(Axis::kToken, 0)), "refused");
  EXPECT_EQ(inferred(Op::kMeanInterleave, {kPageTokenDim}, grouped(Axis::kPage, 2)), "refused");
  EXPECT_EQ(inferred(Op::kMeanInterleave, {{{Axis::kSub, 8}, {Axis::kDim, 64}}}, grouped(Axis::kDim, 2)), "refused");
}

TEST(Shapes, ContractionsSumOneAxisOfBoth) {
  EXPECT_EQ(inferred(Op::kContract, {kHeadDim, kPageDim}, along(Axis::kDim)), "[page B, head 4]");
  EXPECT_EQ(inferred(Op::kContract, {kHeadDim, kPageTokenDim}, along(Axis::kDim)), "[page B, head 4, token 16]");
  EXPECT_EQ(inferred(Op::kContract, {kHeadDim, kPageDim}, along(Axis::kHead)), "refused");
  EXPECT_EQ(inferred(Op::kContract, {kPageOnly, kPageDim}, along(Axis::kPage)), "refused");
}

TEST(Shapes, KroneckerMultipliesExtents) {
  const Shape sub = {{Axis::kSub, 3}};
  EXPECT_EQ(inferred(Op::kKron, {{{Axis::kSub, 4}}, {kPages, {Axis::kSub, 3}}}, along(Axis::kSub)), "[page B, sub 12]");
  EXPECT_EQ(inferred(Op::kKron, {kHeadDim, sub}, along(Axis::kSub)), "[head 4, dim 64, sub 3]");
  EXPECT_EQ(inferred(Op::kKron, {kHeadDim, kHeadDim}, along(Axis::kSub)), "refused");
  EXPECT_EQ(inferred(Op::kKron, {kPageOnly, kPageOnly}, along(Axis::kPage)), "refused");
  EXPECT_EQ(inferred(Op::kKron, {kPageTokenDim, kPageTokenDim}, along(Axis::kToken)), "refused");
  EXPECT_EQ(inferred(Op::kKron, {{{Axis::kDim, 1024}}, {{Axis::kDim, 1024}}}, along(Axis::kDim)), "refused");
}

TEST(Shapes, ReshapeKeepsPagesAndCount) {
  const Shape target = {kPages, {Axis::kSub, 4}, {Axis::kDim, 16}};
  EXPECT_EQ(inferred(Op::kReshape, {kPageDim}, {}, target), "[page B, sub 4, dim 16]");
  EXPECT_EQ(inferred(Op::kReshape, {kPageDim}, {}, {kPages, {Axis::kDim, 63}}), "refused");
  EXPECT_EQ(inferred(Op::kReshape, {kPageDim}, {}, {{Axis::kDim, 64}}), "refused");
  EXPECT_EQ(inferred(Op::kReshape, {kPageTokenDim}, {}, {kPages, {Axis::kDim, 1024}}), "refused");
  EXPECT_EQ(inferred(Op::kReshape, {kPageDim}, {}, {kPages, {Axis::kToken, 64}}), "refused");
  EXPECT_EQ(inferred(Op::kReshape, {kScalar}, {}, {{Axis::kSub, 1}}), "[sub 1]");
}

TEST(Shapes, TransposeSwapsTheLastTwoAxes) {
  EXPECT_EQ(inferred(Op::kTranspose, {kPageTokenDim}), "[page B, dim 64, token 16]");
  EXPECT_EQ(inferred(Op::kTranspose, {kPageDim}), "refused");
}

TEST(Shapes, RowWideOperatorsRefuseInputsThatAreTooLargeToKeep) {
  EXPECT_EQ(inferred(Op::kSoftmax, {{kPages, {Axis::kHead, 16}, {Axis::kDim, 256}}}, along(Axis::kPage)),
            "[page B, head 16, dim 256]");
  EXPECT_EQ(inferred(Op::kSoftmax, {{kPages, {Axis::kHead, 17}, {Axis::kDim, 256}}}, along(Axis::kPage)), "refused");
}

TEST(Shapes, RowWideOperatorsRefuseTokens) {
  Attributes attributes = along(Axis::kPage);
  attributes.kernel = {1};
  for (const Op op : {Op::kMean, Op::kMax, Op::kMin, Op::kL2Norm, Op::kSum, Op::kSoftmax, Op::kNormalize, Op::kConv1d}) {
    EXPECT_EQ(inferred(op, {kPageTokenDim}, attributes), "refused");
    EXPECT_EQ(inferred(op, {{kPages, {Axis::kToken, 8}}}, attributes), "refused");
    EXPECT_NE(inferred(op, {kPageDim}, attributes), "refused");
  }
  EXPECT_EQ(inferred(Op::kMaskSlice, {kPageTokenDim}, attributes), "[page B, token 16, dim 64]");
}

TEST(Shapes, SelectionsWantOneScoreAPage) {
  EXPECT_EQ(inferred(Op::kTopK, {kPageOnly}), "[]");
  EXPECT_EQ(inferred(Op::kTopK, {kPageDim}), "refused");
  EXPECT_EQ(inferred(Op::kTopK, {kScalar}), "refused");
  EXPECT_EQ(inferred(Op::kThreshold, {kPageOnly, kScalar}), "[]");
  EXPECT_EQ(inferred(Op::kThreshold, {kPageOnly, kPageOnly}), "refused");
  EXPECT_EQ(inferred(Op::kTopP, {kPageOnly}), "[]");
  EXPECT_EQ(inferred(Op::kTopP, {kPageDim}), "refused");
}

TEST(Shapes, SelectionsOfTokensWantOneScoreAToken) {
  EXPECT_EQ(inferred(Op::kTopKTokens, {{kPages, {Axis::kToken, 16}}}), "[]");
  EXPECT_EQ(inferred(Op::kTopKTokens, {{kPages, {Axis::kToken, 8}}}), "refused");
  EXPECT_EQ(inferred(Op::kTopKTokens, {kPageOnly}), "refused");
  EXPECT_EQ(inferred(Op::kTopKTokens, {kPageTokenDim}), "refused");
}

TEST(Shapes, RefusesMalformedDeclarations) {
  for (const Shape& shape : {Shape{{Axis::kDim, 64}, kPages}, Shape{{Axis::kPage, 8}}, Shape{{Axis::kDim, 0}},
                             Shape{{Axis::kDim, -5}}, Shape{{Axis::kDim, 8}, {Axis::kDim, 8}},
                             Shape{{Axis::kDim, 1 << 30}, {Axis::kHead, 1 << 30}}, Shape{{static_cast<Axis>(9), 4}}}) {
    EXPECT_EQ(inferred(Op::kFill, {}, {}, shape), "refused") << to_string(shape);
  }
}

}  // namespace
}  // namespace sluice
