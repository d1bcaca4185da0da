#include "scripting/graph/verify.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "scripting/graph/ops.h"
#include "scripting/graph/plan.h"
#include "scripting/graph/shapes.h"
#include "scripting/graph/text.h"
#include "tests/scripting/flow_files.h"

namespace sluice {
namespace {

/// A valid graph with a field, a state, a convolution and two selections.
FlowGraph sample() {
  return trace(R"(
    local flow = sluice.flow{name = "sample", layers = {[0] = "full"}}
    function flow.cache(c)
      c.mean = c.k:mean("token")
      c.seen = sluice.cfill(0)
    end
    function flow.index(q, c)
      local score = q:dot(c.mean):max("head"):conv1d{1, 2, 1} + sluice.fill(1, {"page"})
      c.seen:save(c.seen + score)
      return sluice.union(sluice.topk(score:mask_slice("page", 1), {k = 4}), sluice.threshold(score, {above = 2}))
    end
    return flow
  )",
               "sample.lua");
}

Node& first(FlowGraph& graph, Op op) {
  for (Node& node : graph.nodes) {
    if (node.op == op) return node;
  }
  throw std::logic_error("the sample has no such operator");
}

void expect_refused(const std::string& what, const std::function<void(FlowGraph&)>& forge) {
  FlowGraph graph = sample();
  forge(graph);
  EXPECT_THROW(verify(graph), FlowError) << what;
  EXPECT_THROW(compile(graph), FlowError) << what;
}

TEST(Verify, AcceptsTheSampleAsItIs) { EXPECT_NO_THROW(verify(sample())); }

TEST(Verify, RefusesPatternsThatASelectionCannotHave) {
  expect_refused("beside fields", [](FlowGraph& g) {
    g.sources.front().keys = g.sources.front().values = "mean";
    g.sources.front().beside = Pattern::window(4);
  });
  expect_refused("a mask that takes too long", [](FlowGraph& g) {
    const Pattern block = Pattern::rect({.rows = 2, .columns = 2, .column_stride = 2});  // a key of two
    Pattern costly = Pattern::spread(block, Pattern::diag({.size = 9, .stride = 3}));
    for (int i = 0; i < 5; ++i) costly = costly | costly;
    g.sources.front().beside = costly;
  });
  expect_refused("around an index stage that keeps a state by page", [](FlowGraph& g) {
    g.patterns.rest = g.patterns.add(Pattern::window(4));
    g.patterns.where = g.where;
  });
}

TEST(Verify, RefusesForgedIds) {
  expect_refused("operand ahead", [](FlowGraph& g) { first(g, Op::kAdd).inputs[0] = static_cast<NodeId>(g.nodes.size() - 1); });
  expect_refused("operand itself", [](FlowGraph& g) { g.nodes.back().inputs[0] = static_cast<NodeId>(g.nodes.size() - 1); });
  expect_refused("operand negative", [](FlowGraph& g) { first(g, Op::kMax).inputs[0] = -2; });
  expect_refused("operand beyond", [](FlowGraph& g) { first(g, Op::kMax).inputs[0] = 1 << 30; });
  expect_refused("too many operands", [](FlowGraph& g) { first(g, Op::kMax).inputs.push_back(0); });
  expect_refused("no operands", [](FlowGraph& g) { first(g, Op::kAdd).inputs.clear(); });
  expect_refused("selection beyond", [](FlowGraph& g) { g.attend_to(1 << 20); });
  expect_refused("selection negative", [](FlowGraph& g) { g.attend_to(-7); });
  expect_refused("selection is a tensor", [](FlowGraph& g) { g.attend_to(0); });
  expect_refused("field beyond", [](FlowGraph& g) { g.fields[0].node = 999; });
  expect_refused("field without value", [](FlowGraph& g) { g.fields[0].node = kNoNode; });
  expect_refused("field from the index stage", [](FlowGraph& g) { g.fields[0].node = static_cast<NodeId>(g.nodes.size() - 1); });
  expect_refused("saves forgotten", [](FlowGraph& g) { g.saves.clear(); });
  expect_refused("saves invented", [](FlowGraph& g) { g.saves.push_back(0); });
}

TEST(Verify, RefusesForgedEnumerations) {
  expect_refused("operator", [](FlowGraph& g) { first(g, Op::kAdd).op = static_cast<Op>(200); });
  expect_refused("stage", [](FlowGraph& g) { g.nodes.back().stage = static_cast<Stage>(9); });
  expect_refused("axis", [](FlowGraph& g) { first(g, Op::kMax).attributes.axis = static_cast<Axis>(77); });
  expect_refused("method", [](FlowGraph& g) { first(g, Op::kTopK).attributes.method = static_cast<TopKMethod>(50); });
  expect_refused("type of a field", [](FlowGraph& g) { g.fields[0].type = static_cast<DataType>(50); });
  expect_refused("type of keys", [](FlowGraph& g) { g.geometry.kv = static_cast<DataType>(50); });
}

TEST(Verify, RefusesForgedShapes) {
  expect_refused("larger", [](FlowGraph& g) { first(g, Op::kMax).shape.push_back({Axis::kSub, 4}); });
  expect_refused("scalar", [](FlowGraph& g) { first(g, Op::kContract).shape.clear(); });
  expect_refused("fill without end", [](FlowGraph& g) { first(g, Op::kFill).shape.push_back({Axis::kSub, 1 << 30}); });
  expect_refused("field", [](FlowGraph& g) { g.fields[0].shape = {{Axis::kDim, 32}}; });
  expect_refused("field by page", [](FlowGraph& g) {
    g.fields[0].shape.insert(g.fields[0].shape.begin(), {Axis::kPage, kDynamic});
  });
  expect_refused("state", [](FlowGraph& g) { g.states[0].shape = {{Axis::kPage, kDynamic}, {Axis::kDim, 1 << 16}}; });
  expect_refused("page later", [](FlowGraph& g) { g.states[0].shape = {{Axis::kDim, 4}, {Axis::kPage, kDynamic}}; });
}

TEST(Verify, RefusesForgedAttributes) {
  expect_refused("NaN", [](FlowGraph& g) { first(g, Op::kFill).attributes.value = NAN; });
  expect_refused("beyond float32", [](FlowGraph& g) { first(g, Op::kFill).attributes.value = 1e60; });
  expect_refused("even kernel", [](FlowGraph& g) { first(g, Op::kConv1d).attributes.kernel.pop_back(); });
  expect_refused("no kernel", [](FlowGraph& g) { first(g, Op::kConv1d).attributes.kernel.clear(); });
  expect_refused("long kernel", [](FlowGraph& g) { first(g, Op::kConv1d).attributes.kernel.resize(100001); });
  expect_refused("NaN tap", [](FlowGraph& g) { first(g, Op::kConv1d).attributes.kernel[0] = NAN; });
  expect_refused("infinite tap", [](FlowGraph& g) { first(g, Op::kConv1d).attributes.kernel[0] = INFINITY; });
  expect_refused("negative k", [](FlowGraph& g) { first(g, Op::kTopK).attributes.k = -1; });
  expect_refused("huge first and last",
                 [](FlowGraph& g) { first(g, Op::kTopK).attributes.first = first(g, Op::kTopK).attributes.last = INT32_MAX; });
  expect_refused("NaN ratio", [](FlowGraph& g) { first(g, Op::kTopK).attributes.ratio = NAN; });
  expect_refused("empty budget", [](FlowGraph& g) { first(g, Op::kTopK).attributes.k = 0; });
  expect_refused("empty threshold", [](FlowGraph& g) { first(g, Op::kThreshold).attributes.last = 0; });
  expect_refused("unknown state", [](FlowGraph& g) { first(g, Op::kLoad).attributes.field = "nothing"; });
  expect_refused("unknown field", [](FlowGraph& g) { first(g, Op::kField).attributes.field = "nothing"; });
  expect_refused("NaN state", [](FlowGraph& g) { g.states[0].initial = NAN; });
}

TEST(Verify, RefusesForgedNamesAndGeometry) {
  for (const std::string& name : {std::string(), std::string("../x"), std::string("a b"), std::string("a\nb"),
                                  std::string(65, 'a'), std::string("a\0b", 3), std::string(".x")}) {
    expect_refused("flow " + name, [&](FlowGraph& g) { g.name = name; });
  }
  for (const std::string name : {"", "k", "v", "a.b", "1a", "a;drop"}) {
    expect_refused("field " + std::string(name),
                   [&](FlowGraph& g) { g.fields[0].name = first(g, Op::kField).attributes.field = name; });
  }
  expect_refused("field twice", [](FlowGraph& g) { g.fields.push_back(g.fields[0]); });
  expect_refused("state twice", [](FlowGraph& g) { g.states.push_back(g.states[0]); });
  expect_refused("state named like a field", [](FlowGraph& g) { g.states.push_back({"mean", {}, 0, {}}); });
  for (const int page : {0, -16, 4, 24, 256, INT32_MAX}) expect_refused("page", [&](FlowGraph& g) { g.geometry.page = page; });
  for (const int dim : {0, -1, 63, 1 << 20}) expect_refused("dim", [&](FlowGraph& g) { g.geometry.head_dim = dim; });
  for (const int group : {0, -1, 65, 1 << 20}) expect_refused("group", [&](FlowGraph& g) { g.geometry.group = group; });
  expect_refused("layer", [](FlowGraph& g) { g.layers.sparse[1 << 30] = true; });
}

TEST(Verify, RefusesStagesThatMix) {
  expect_refused("index operator in the cache stage", [](FlowGraph& g) { first(g, Op::kMean).op = Op::kSum; });
  expect_refused("cache after index", [](FlowGraph& g) { g.nodes.back().stage = Stage::kCache; });
  expect_refused("index first", [](FlowGraph& g) { g.nodes.front().stage = Stage::kIndex; });
  expect_refused("operand of the other stage", [](FlowGraph& g) { first(g, Op::kMax).inputs[0] = 1; });
  expect_refused("tensor as selection", [](FlowGraph& g) { first(g, Op::kUnion).inputs[0] = first(g, Op::kMax).inputs[0]; });
}

TEST(Verify, RefusesForgedRowWideOperatorsOverTokens) {
  const FlowGraph valid = trace(R"(
    local flow = sluice.flow{name = "tokens"}
    function flow.index(q, c)
      return sluice.topk(q:dot(c.k):max("head"):mean("token"), {k = 4})
    end
    return flow
  )",
                                "tokens.lua");
  for (const Op op : {Op::kMean, Op::kMax, Op::kMin, Op::kL2Norm, Op::kSum, Op::kSoftmax, Op::kNormalize, Op::kConv1d}) {
    FlowGraph graph = valid;
    Node& forged = first(graph, Op::kMean);
    forged.op = op;
    forged.attributes.axis = Axis::kPage;
    forged.attributes.kernel = {1};
    forged.shape = {{Axis::kToken, 16}};
    if (!is_reduction(op)) forged.shape.insert(forged.shape.begin(), {Axis::kPage, kDynamic});
    try {
      verify(graph);
      FAIL() << name_of(op) << " was accepted";
    } catch (const FlowError& error) {
      EXPECT_NE(error.message().find("cannot work along \"page\" over tokens"), std::string::npos) << error.message();
    }
  }
}

TEST(Verify, RefusesLayersThatTheModelDoesNotHave) {
  FlowGraph graph = sample();
  graph.layers.sparse = {{0, false}, {27, true}, {-1, true}, {-28, false}};
  EXPECT_NO_THROW(verify_layers(graph, 28));
  for (const int layer : {28, 99, -29}) {
    FlowGraph beyond = graph;
    beyond.layers.sparse[layer] = false;
    try {
      verify_layers(beyond, 28);
      FAIL() << layer << " was accepted";
    } catch (const FlowError& error) {
      EXPECT_EQ(error.message(), "layers: there is no layer " + std::to_string(layer) + " in a model of 28 layers");
      EXPECT_EQ(error.where().file, "sample.lua");
    }
  }
}

TEST(Verify, RefusesALayerThatIsFullAndSparse) {
  FlowGraph graph = sample();
  graph.layers.sparse = {{7, false}, {-1, false}, {0, true}};
  EXPECT_NO_THROW(verify_layers(graph, 8));
  graph.layers.sparse[-1] = true;
  EXPECT_NO_THROW(verify_layers(graph, 9));
  const auto refusal = [&] {
    try {
      verify_layers(graph, 8);
    } catch (const FlowError& error) {
      return error.message();
    }
    return std::string("accepted");
  };
  EXPECT_EQ(refusal(), "layers: 7 and -1 are one layer in a model of 8 layers, and it cannot be \"full\" and \"sparse\"");
  graph.variant = "ends";
  EXPECT_EQ(refusal(),
            "layers: 7 and -1 are one layer in a model of 8 layers, and it cannot have two programs, or one and be \"full\"");
}

TEST(Verify, BoundsAllStatesTogether) {
  FlowGraph graph = sample();
  const auto add_states = [&graph](int count) {
    for (int i = 0; i < count; ++i) {
      graph.states.push_back(
          {"more" + std::to_string(graph.states.size()), {{Axis::kPage, kDynamic}, {Axis::kSub, 4095}}, 0, {}});
    }
  };
  add_states(4);  // and the sample's own, of one number a page
  EXPECT_NO_THROW(verify(graph));
  add_states(1);
  EXPECT_THROW(verify(graph), FlowError);
}

TEST(Verify, BoundsTheWorkOfAFlow) {
  FlowGraph graph;
  graph.name = "work";
  graph.layers.rest_sparse = false;
  graph.nodes.push_back({Op::kFill, Stage::kIndex, {}, {{Axis::kPage, kDynamic}, {Axis::kDim, 65536}}, {}, {}});
  for (int i = 0; i < 100; ++i) graph.nodes.push_back({Op::kExp, Stage::kIndex, {i}, graph.nodes[0].shape, {}, {}});
  EXPECT_THROW(verify(graph), FlowError);
  graph.nodes.resize(40);
  EXPECT_NO_THROW(verify(graph));
}

/// What `verify` promises, checked without it.
void expect_consistent(const FlowGraph& graph) {
  const auto count = static_cast<NodeId>(graph.nodes.size());
  for (NodeId id = 0; id < count; ++id) {
    const Node& node = graph.nodes[static_cast<size_t>(id)];
    ASSERT_TRUE(is_op(node.op));
    ASSERT_EQ(node.inputs.size(), static_cast<size_t>(info_of(node.op).inputs));
    for (const NodeId input : node.inputs) {
      ASSERT_GE(input, 0);
      ASSERT_LT(input, id);
    }
    EXPECT_EQ(infer_shape(graph, node), node.shape);
    EXPECT_LE(elements_per_page(node.shape), GraphLimits::kElements);
  }
  for (const Field& field : graph.fields) ASSERT_TRUE(field.node >= 0 && field.node < count);
  ASSERT_TRUE(graph.selection() == kNoNode || (graph.selection() >= 0 && graph.selection() < count));
}

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  void mutate(FlowGraph& graph) {
    if (graph.nodes.empty()) return;
    Node& node = graph.nodes[static_cast<size_t>(below(static_cast<int>(graph.nodes.size())))];
    Attributes& a = node.attributes;
    switch (below(16)) {
      case 0:
        node.op = static_cast<Op>(below(60));
        break;
      case 1:
        node.stage = static_cast<Stage>(below(3));
        break;
      case 2:
        if (!node.inputs.empty())
          node.inputs[static_cast<size_t>(below(static_cast<int>(node.inputs.size())))] =
              below(static_cast<int>(graph.nodes.size()) + 2) - 1;
        break;
      case 3:
        node.inputs.push_back(below(8));
        break;
      case 4:
        if (!node.inputs.empty()) node.inputs.pop_back();
        break;
      case 5:
        node.shape.push_back({static_cast<Axis>(below(6)), number()});
        break;
      case 6:
        if (!node.shape.empty()) node.shape.erase(node.shape.begin() + below(static_cast<int>(node.shape.size())));
        break;
      case 7:
        if (!node.shape.empty()) node.shape[static_cast<size_t>(below(static_cast<int>(node.shape.size())))].extent = number();
        break;
      case 8:
        a.axis = static_cast<Axis>(below(6));
        break;
      case 9:
        a.value = below(2) ? NAN : number() * 1e30;
        break;
      case 10:
        a.group = number();
        break;
      case 11:
        a.k = number();
        a.last = number();
        break;
      case 12:
        a.kernel.assign(static_cast<size_t>(below(5)), 1.0f);
        break;
      case 13:
        a.field = below(2) ? "mean" : "other";
        break;
      case 14:
        graph.attend_to(below(static_cast<int>(graph.nodes.size()) + 2) - 1);
        break;
      default:
        graph.nodes.push_back(Node(node));
        break;
    }
  }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  int number() {
    constexpr int kNumbers[] = {0, 1, -1, 2, 4, 16, 64, 65537, 1 << 30, INT32_MAX, INT32_MIN, kDynamic};
    return kNumbers[below(12)];
  }

  std::mt19937 random_;
};

TEST(Verify, MutatedGraphsAreRefusedOrSound) {
  std::vector<FlowGraph> seeds = {sample()};
  for (const auto& path : testing::valid_flows()) seeds.push_back(testing::trace_by_name(path));
  int accepted = 0;
  for (uint32_t seed = 0; seed < 6000; ++seed) {
    FlowGraph graph = seeds[seed % seeds.size()];
    Mutator mutator(seed);
    for (uint32_t i = 0; i <= seed % 3; ++i) mutator.mutate(graph);
    try {
      verify(graph);
    } catch (const FlowError&) {
      continue;
    }
    ++accepted;
    expect_consistent(graph);
    EXPECT_FALSE(to_text(compile(graph).plan).empty());
  }
  EXPECT_GT(accepted, 100) << "the property was hardly tried";
}

}  // namespace
}  // namespace sluice
