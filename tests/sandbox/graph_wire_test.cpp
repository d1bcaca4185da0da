#include "sandbox/wire/graph_wire.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <random>

#include "sandbox/wire/messages.h"
#include "sandbox/wire/wire.h"
#include "scripting/graph/plan.h"
#include "scripting/graph/recompute.h"
#include "scripting/graph/text.h"
#include "scripting/graph/verify.h"
#include "tests/scripting/flow_files.h"
#include "tests/support/random_flow.h"

namespace sluice::test {
namespace {

using testing::random_flow;

void expect_same_places(const FlowGraph& a, const FlowGraph& b) {
  EXPECT_EQ(a.where, b.where);
  for (size_t i = 0; i < a.nodes.size(); ++i) EXPECT_EQ(a.nodes[i].where, b.nodes[i].where);
  for (size_t i = 0; i < a.fields.size(); ++i) EXPECT_EQ(a.fields[i].where, b.fields[i].where);
  for (size_t i = 0; i < a.states.size(); ++i) EXPECT_EQ(a.states[i].where, b.states[i].where);
}

void expect_same(const FlowGraph& graph, const FlowGraph& read) {
  EXPECT_EQ(to_text(read), to_text(graph));
  ASSERT_EQ(read.nodes.size(), graph.nodes.size());
  for (size_t i = 0; i < graph.nodes.size(); ++i) {
    EXPECT_EQ(read.nodes[i].attributes, graph.nodes[i].attributes);
    EXPECT_EQ(read.nodes[i].inputs, graph.nodes[i].inputs);
  }
  EXPECT_EQ(read.layers, graph.layers);
  EXPECT_EQ(read.saves, graph.saves);
  EXPECT_EQ(read.sources, graph.sources);
  EXPECT_EQ(read.mass_rows, graph.mass_rows);
}

/// What a reader may do with any bytes: refuse them, or give a graph that has these bytes and that `verify` judges.
void expect_read_safely(const std::string& bytes) {
  try {
    const FlowGraph graph = decode_graph(bytes, "x.lua");
    EXPECT_EQ(encode_graph(graph), bytes);
    verify(graph);
    compile(graph);
  } catch (const InputError&) {
    // Either of them refused.
  }
}

FlowGraph sample() {
  return trace(R"(
    local flow = sluice.flow{name = "sample", layers = {[0] = "full", [-1] = "full", rest = "sparse"}}
    function flow.cache(c)
      c.m = c.k:mean("token")
    end
    function flow.index(q, c)
      local seen = sluice.load("seen", {axes = {"page"}})
      local s = q:dot(c.m):max("head"):conv1d({0.25, 0.5, 0.25}, "page") * -0.0 + seen
      sluice.save("seen", s)
      return sluice.union(sluice.topk(s, {k = 4, ratio = 0.5, method = "gvr"}), sluice.window{last = 2})
    end
    return flow
  )",
               "x.lua");
}

TEST(GraphWire, RoundTripIsTheSameGraph) {
  for (const auto& path : testing::valid_flows()) {
    SCOPED_TRACE(path);
    const FlowGraph graph = testing::trace_by_name(path);
    const FlowGraph read = decode_graph(encode_graph(graph), path.filename().string());
    expect_same(graph, read);
    expect_same_places(graph, read);
  }
  for (uint64_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    for (const FlowGraph& graph :
         {random_flow(seed), testing::random_cover(seed), testing::random_after(seed), testing::random_eviction(seed)}) {
      expect_same(graph, decode_graph(encode_graph(graph), ""));
    }
  }
}

FlowGraph patterned() {
  return trace(R"(
    local p = sluice.pattern
    local flow = sluice.flow{name = "patterned", prefill = "dense"}
    flow.pattern = {[0] = "full", [3] = ~p.fixed(16), [-1] = p.rect{size = {8, 4}, stride = {2, 1}} >> p.diag{offset = -3},
                    [5] = p.by_head{p.window(9), p.sink(3) | p.fixed(8)}, rest = p.sink(4) | p.window(512) & p.strided(9, 7)}
    return flow)",
               "patterned.lua");
}

TEST(GraphWire, PatternsTravelWhole) {
  const FlowGraph graph = patterned();
  const FlowGraph read = decode_graph(encode_graph(graph), "patterned.lua");
  EXPECT_EQ(read.patterns, graph.patterns);
  EXPECT_EQ(to_text(read), to_text(graph));
}

TEST(GraphWire, RefusesForgedPatterns) {
  const std::string bytes = encode_graph(patterned());
  std::mt19937 random(3);
  for (int i = 0; i < 4000; ++i) {
    std::string forged = bytes;
    for (int change = 0; change < 1 + i % 3; ++change) forged[random() % forged.size()] = static_cast<char>(random());
    try {
      const FlowGraph graph = decode_graph(forged, "x.lua");
      verify(graph);
      for (const HeadPatterns& heads : graph.patterns.patterns) {
        EXPECT_EQ(HeadPatterns::of({heads.each().begin(), heads.each().end()}), heads);
        for (const Pattern& pattern : heads.each())
          EXPECT_EQ(Pattern::of({pattern.nodes().begin(), pattern.nodes().end()}), pattern);
      }
    } catch (const InputError&) {
      // Refused, by one of them.
    }
  }
}

TEST(GraphWire, KeepsTheSignOfZeroAndInfinity) {
  FlowGraph graph = sample();
  for (const double value : {0.0, -0.0, HUGE_VAL, -HUGE_VAL, 1e-300}) {
    graph.nodes[0].op = Op::kFill;
    graph.nodes[0].attributes = Attributes{};
    graph.nodes[0].attributes.value = value;
    const FlowGraph read = decode_graph(encode_graph(graph), "x.lua");
    EXPECT_EQ(read.nodes[0].attributes.value, value);
    EXPECT_EQ(std::signbit(read.nodes[0].attributes.value), std::signbit(value));
  }
}

TEST(GraphWire, RefusesEveryCutAndEveryTail) {
  const std::string bytes = encode_graph(sample());
  for (size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_THROW(decode_graph(std::string_view(bytes).substr(0, length), "x.lua"), InputError) << length;
  }
  EXPECT_THROW(decode_graph(bytes + std::string(1, '\0'), "x.lua"), InputError);
}

/// Makes node 1 one of another operator, whose attributes it gives.
Attributes& give(FlowGraph& graph, Op op) {
  graph.nodes[1].op = op;
  return graph.nodes[1].attributes;
}

struct Forgery {
  std::string name;
  std::function<void(FlowGraph&)> forge;
};

TEST(GraphWire, RefusesForgedGraphs) {
  const std::vector<Forgery> forgeries = {
      {"operand of the future", [](FlowGraph& g) { g.nodes[1].inputs[0] = 1; }},
      {"operand beyond the end", [](FlowGraph& g) { g.nodes[1].inputs[0] = 1 << 20; }},
      {"negative operand", [](FlowGraph& g) { g.nodes[1].inputs[0] = -1; }},
      {"too many operands", [](FlowGraph& g) { g.nodes[1].inputs.assign(5, 0); }},
      {"operator", [](FlowGraph& g) { g.nodes[1].op = static_cast<Op>(200); }},
      {"stage", [](FlowGraph& g) { g.nodes[1].stage = static_cast<Stage>(3); }},
      {"axis", [](FlowGraph& g) { g.nodes[1].attributes.axis = static_cast<Axis>(5); }},
      {"axis of a shape", [](FlowGraph& g) { g.nodes[1].shape[0].axis = static_cast<Axis>(77); }},
      {"rank",
       [](FlowGraph& g) {
         g.nodes[1].shape.assign(6, {Axis::kDim, 1});
       }},
      {"extent 0", [](FlowGraph& g) { g.nodes[1].shape[0].extent = 0; }},
      {"extent of a page axis",
       [](FlowGraph& g) {
         g.nodes[1].shape[0] = {Axis::kPage, 4};
       }},
      {"huge extent", [](FlowGraph& g) { g.nodes[1].shape[0].extent = INT32_MAX; }},
      {"comparison", [](FlowGraph& g) { give(g, Op::kWhere).compare = static_cast<Compare>(6); }},
      {"method", [](FlowGraph& g) { give(g, Op::kTopK).method = static_cast<TopKMethod>(3); }},
      {"NaN", [](FlowGraph& g) { give(g, Op::kConstant).value = NAN; }},
      {"NaN as a ratio", [](FlowGraph& g) { give(g, Op::kApproxTopK).ratio = NAN; }},
      {"infinite kernel", [](FlowGraph& g) { give(g, Op::kConv1d).kernel = {INFINITY}; }},
      {"long kernel", [](FlowGraph& g) { give(g, Op::kConv1d).kernel.assign(100000, 1); }},
      {"name of a field with a quote", [](FlowGraph& g) { give(g, Op::kField).field = "a'; DROP TABLE"; }},
      {"many sources", [](FlowGraph& g) { g.sources.assign(5, g.sources.front()); }},
      {"keys with a quote", [](FlowGraph& g) { g.sources.front().keys = "k'"; }},
      {"bias beyond the end", [](FlowGraph& g) { g.sources.front().bias = 4096; }},
      {"name with a zero", [](FlowGraph& g) { g.fields[0].name = std::string("a\0b", 3); }},
      {"long name", [](FlowGraph& g) { g.name = std::string(65, 'x'); }},
      {"path as a name", [](FlowGraph& g) { g.name = "../../x"; }},
      {"value of a field beyond the end", [](FlowGraph& g) { g.fields[0].node = 4096; }},
      {"type of a field", [](FlowGraph& g) { g.fields[0].type = static_cast<DataType>(4); }},
      {"many fields", [](FlowGraph& g) { g.fields.assign(65, g.fields[0]); }},
      {"many states", [](FlowGraph& g) { g.states.assign(65, g.states[0]); }},
      {"NaN as a first value", [](FlowGraph& g) { g.states[0].initial = NAN; }},
      {"many operators", [](FlowGraph& g) { g.nodes.resize(4097, g.nodes[0]); }},
      {"save beyond the end", [](FlowGraph& g) { g.saves[0] = 4096; }},
      {"selection beyond the end", [](FlowGraph& g) { g.attend_to(4096); }},
      {"selection below none", [](FlowGraph& g) { g.attend_to(-2); }},
      {"head of no channels", [](FlowGraph& g) { g.geometry.head_dim = 0; }},
      {"huge group", [](FlowGraph& g) { g.geometry.group = 1 << 30; }},
      {"type of the KV", [](FlowGraph& g) { g.geometry.kv = static_cast<DataType>(9); }},
      {"layer", [](FlowGraph& g) { g.layers.sparse[1 << 20] = true; }},
      {"fewer rows of a prompt than none", [](FlowGraph& g) { g.mass_rows = -1; }},
      {"line", [](FlowGraph& g) { g.nodes[1].where.line = -1; }},
  };
  for (const Forgery& forgery : forgeries) {
    FlowGraph graph = sample();
    forgery.forge(graph);
    EXPECT_THROW(decode_graph(encode_graph(graph), "x.lua"), InputError) << forgery.name;
  }
}

/// Each forgery is read as it is written, and then refused by `verify` and `compile`; the sample is not.
void expect_read_and_refused(const FlowGraph& sample, const std::vector<Forgery>& forgeries) {
  EXPECT_NO_THROW(verify(sample));
  for (const Forgery& forgery : forgeries) {
    FlowGraph graph = sample;
    forgery.forge(graph);
    FlowGraph read;
    ASSERT_NO_THROW(read = decode_graph(encode_graph(graph), "x.lua")) << forgery.name;
    EXPECT_THROW(verify(read), FlowError) << forgery.name;
    EXPECT_THROW(compile(read), FlowError) << forgery.name;
  }
}

FlowGraph sample_after() {
  return trace(R"(
    local flow = sluice.flow{name = "after", prompt_mass = 3}
    function flow.cache(c) c.heavy = sluice.cfill(0) c.seen = sluice.cfill(0) end
    function flow.index(q, c)
      c.seen:save(c.seen + 1)
      return sluice.topk(c.heavy + c.seen, {k = 4})
    end
    function flow.after(q, c, mass) c.heavy:save(c.heavy + mass:sum("token", "head")) end
    return flow
  )",
               "after.lua");
}

// What is read may still be no graph: `verify` refuses it, and nothing else looks at it.
TEST(GraphWire, ForgedAfterStagesAreReadAndRefused) {
  const auto first = [](FlowGraph& graph, Op op, Stage stage) -> Node& {
    return *std::find_if(graph.nodes.begin(), graph.nodes.end(),
                         [&](const Node& node) { return node.op == op && node.stage == stage; });
  };
  const std::vector<Forgery> forgeries = {
      {"masses before attention", [&](FlowGraph& g) { first(g, Op::kLoad, Stage::kIndex).op = Op::kMass; }},
      {"masses in the cache stage", [&](FlowGraph& g) { first(g, Op::kMass, Stage::kAfter).stage = Stage::kCache; }},
      {"masses of another shape", [&](FlowGraph& g) { first(g, Op::kMass, Stage::kAfter).shape.pop_back(); }},
      {"masses with an operand", [&](FlowGraph& g) { first(g, Op::kMass, Stage::kAfter).inputs = {0}; }},
      {"a selection behind attention", [&](FlowGraph& g) { first(g, Op::kTopK, Stage::kIndex).stage = Stage::kAfter; }},
      {"an index stage behind the after stage", [&](FlowGraph& g) { g.nodes.back().stage = Stage::kIndex; }},
      {"an operand of the index stage", [&](FlowGraph& g) { first(g, Op::kAdd, Stage::kAfter).inputs[0] = 1; }},
      {"a state saved in both stages", [&](FlowGraph& g) { first(g, Op::kSave, Stage::kAfter).attributes.field = "seen"; }},
      {"a save that is not listed", [](FlowGraph& g) { g.saves.pop_back(); }},
      {"a bias behind attention",
       [&](FlowGraph& g) { g.sources.front().bias = static_cast<NodeId>(&first(g, Op::kLoad, Stage::kAfter) - g.nodes.data()); }},
      {"masses of full layers", [](FlowGraph& g) { g.layers.rest_sparse = false; }},
      {"an after stage without a selection", [](FlowGraph& g) { g.sources.clear(); }},
      {"rows beyond the limit", [](FlowGraph& g) { g.mass_rows = GraphLimits::kMassRows + 1; }},
  };
  expect_read_and_refused(sample_after(), forgeries);
}

FlowGraph sample_eviction() {
  return trace(R"(
    local flow = sluice.flow{name = "evicts", page = 16, prompt_mass = 3}
    function flow.cache(c) c.heavy = sluice.cfill(0, {"token"}) end
    function flow.after(q, c, mass)
      local heavy = c.heavy + mass:sum("head")
      c.heavy:save(heavy)
      sluice.evict(heavy, {budget = 64, first = 4, recent = 8, chunk = 24, keep = sluice.pattern.window(12)})
    end
    return flow
  )",
               "evicts.lua");
}

TEST(GraphWire, VariantsGoAlong) {
  FlowGraph graph = testing::random_eviction(3);
  graph.layers = {.rest_sparse = false, .sparse = {{0, true}}};
  FlowGraph variant = testing::random_eviction(3);
  variant.layers = {.rest_sparse = true, .sparse = {{0, false}}};
  variant.variant = "rest";
  graph.variants.push_back(variant);
  const FlowGraph read = decode_graph(encode_graph(graph), "x.lua");
  expect_same(graph, read);
  ASSERT_EQ(read.variants.size(), 1U);
  expect_same(graph.variants[0], read.variants[0]);
  graph.variants[0].variants.push_back(variant);
  EXPECT_THROW(decode_graph(encode_graph(graph), "x.lua"), InputError) << "variants of variants";
  graph.variants.assign(GraphLimits::kVariants + 1, variant);
  EXPECT_THROW(decode_graph(encode_graph(graph), "x.lua"), InputError);
}

TEST(GraphWire, RulesOfCopiesGoAlong) {
  for (const char* body : {"return 'none'", "return 'all'", "return sluice.topk_tokens(r.mass:sum('head'), {ratio = 0.25})"}) {
    const FlowGraph graph =
        trace(std::string("local flow = sluice.flow{name = 'v', layers = {rest = 'full'}, recompute = {layer = 2, "
                          "rows = 9}}\nfunction flow.recompute(r) ") +
                  body + " end\nreturn flow",
              "x.lua", {.heads = 7});
    const std::string bytes = encode_graph(graph);
    const FlowGraph read = decode_graph(bytes, "x.lua");
    EXPECT_EQ(to_text(read), to_text(graph));
    ASSERT_NE(read.recompute, nullptr);
    EXPECT_EQ(read.recompute->kind, graph.recompute->kind);
    EXPECT_EQ(read.recompute->rows, 9);
    EXPECT_EQ(read.recompute->where, graph.recompute->where);
    expect_same(graph.recompute->graph, read.recompute->graph);
    verify(read);
    for (size_t cut = 0; cut < bytes.size(); ++cut) EXPECT_THROW(decode_graph(bytes.substr(0, cut), "x.lua"), InputError);
    std::mt19937 random(3);  // NOLINT: the same bytes every time
    for (int i = 0; i < 2000; ++i) {
      std::string forged = bytes;
      forged[random() % forged.size()] = static_cast<char>(random());
      expect_read_safely(forged);
    }
    FlowGraph inner = graph;
    inner.recompute =
        std::make_shared<const Recompute>(Recompute{.kind = Recompute::Kind::kSelected, .graph = graph, .where = {}});
    EXPECT_THROW(decode_graph(encode_graph(inner), "x.lua"), InputError) << "a rule of a rule";
  }
}

TEST(GraphWire, ForgedEvictionsAreReadAndRefused) {
  const std::vector<Forgery> forgeries = {
      {"a budget without room for the first and the recent", [](FlowGraph& g) { g.eviction->budget = 11; }},
      {"a budget without room for a chunk", [](FlowGraph& g) { g.eviction->chunk = 61; }},
      {"the score of no state", [](FlowGraph& g) { g.eviction->score = "other"; }},
      {"the score of a state of another shape",
       [](FlowGraph& g) {
         g.states.back().shape.push_back({Axis::kHead, 4});
       }},
      {"a score that is not saved", [](FlowGraph& g) { g.saves.pop_back(); }},
      {"prompts without scores", [](FlowGraph& g) { g.mass_rows = 0; }},
      {"a state by page",
       [](FlowGraph& g) {
         g.states.push_back({"a", {{Axis::kPage, kDynamic}}, 0, {}});
       }},
      {"tokens beside the selection", [](FlowGraph& g) { g.sources.front().beside = Pattern::window(3); }},
      {"a pattern of layers", [](FlowGraph& g) { g.patterns.rest = g.patterns.add(Pattern::window(3)); }},
      {"a pattern that takes too long",
       [](FlowGraph& g) {
         const Pattern block = Pattern::rect({.rows = 2, .columns = 2, .column_stride = 2});
         g.eviction->keep = Pattern::window(2);
         for (int i = 0; i < 4; ++i) g.eviction->keep = *g.eviction->keep | Pattern::spread(block, Pattern::window(i + 3));
       }},
  };
  expect_read_and_refused(sample_eviction(), forgeries);
  for (const auto forge :
       {+[](Eviction& e) { e.budget = 0; }, +[](Eviction& e) { e.first = -1; }, +[](Eviction& e) { e.recent = 0; },
        +[](Eviction& e) { e.chunk = -1; }, +[](Eviction& e) { e.budget = GraphLimits::kTokens + 1; }}) {
    FlowGraph graph = sample_eviction();
    forge(*graph.eviction);
    EXPECT_THROW(verify(graph), FlowError);
    EXPECT_THROW(decode_graph(encode_graph(graph), "x.lua"), InputError);
  }
}

TEST(GraphWire, RefusesASecondEncodingOfTheSameGraph) {
  // The last node's attributes are all defaults; claiming that one is present, and sending the default, gives no new graph.
  FlowGraph graph;
  graph.name = "x";
  graph.nodes.push_back({Op::kConstant, Stage::kIndex, {}, {}, {}, {}});
  const std::string bytes = encode_graph(graph);
  const std::string node = {static_cast<char>(Op::kConstant), static_cast<char>(Stage::kIndex), 0, 0};
  const size_t attributes = bytes.find(node) + node.size();
  std::string forged = bytes;
  forged[attributes] = 1;
  forged.insert(attributes + 2, sizeof(double), '\0');
  EXPECT_NO_THROW(decode_graph(bytes, ""));
  EXPECT_THROW(decode_graph(forged, ""), InputError);
}

TEST(GraphWire, RefusesCountsOfWhatIsNotThere) {
  WireWriter writer;
  writer.text("x");
  for (const int number : {0, 64, 4, 16}) writer.number(number);
  writer.number(DataType::kBF16);
  writer.number(true);
  writer.number(uint32_t{4096});  // layers that are not there
  EXPECT_THROW(decode_graph(writer.bytes(), ""), InputError);
}

/// One change of the kind that finds faults in readers: bits, bytes, numbers at the edge, pieces doubled or left out.
void mutate(std::string& bytes, std::mt19937_64& random) {
  if (bytes.empty()) return;
  const size_t at = random() % bytes.size();
  switch (random() % 5) {
    case 0:
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << random() % 8));
      break;
    case 1:
      bytes[at] = static_cast<char>(random());
      break;
    case 2: {
      constexpr int32_t kEdges[] = {0, 1, -1, INT32_MAX, INT32_MIN, 4096, 65536};
      const int32_t edge = kEdges[random() % std::size(kEdges)];
      if (at + sizeof(edge) <= bytes.size()) std::memcpy(bytes.data() + at, &edge, sizeof(edge));
      break;
    }
    case 3:
      bytes.erase(at, 1 + random() % 8);
      break;
    default:
      bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 16));
  }
}

TEST(GraphWire, AnyChangeIsRefusedOrGivesAnotherSoundGraph) {
  std::mt19937_64 random(4);
  for (uint64_t seed = 0; seed < 100; ++seed) {
    const std::string bytes = encode_graph(seed % 2 == 0 ? random_flow(seed) : testing::random_after(seed));
    for (int i = 0; i < 100; ++i) {
      std::string changed = bytes;
      for (uint64_t changes = 1 + random() % 3; changes > 0; --changes) mutate(changed, random);
      expect_read_safely(changed);
    }
  }
}

TEST(Messages, DiagnosticsTravelWhole) {
  const Diagnostic sent = {Diagnostic::Kind::kInput, 12, std::string("zero \0 and \xff", 12), "a hint"};
  const auto read = std::get<Diagnostic>(decode_answer(encode(TraceAnswer(sent)), "x.lua"));
  EXPECT_EQ(read.kind, sent.kind);
  EXPECT_EQ(read.line, sent.line);
  EXPECT_EQ(read.message, sent.message);
  EXPECT_EQ(read.hint, sent.hint);
}

TEST(Messages, LongDiagnosticsAreCutAndStillRead) {
  const Diagnostic sent = {Diagnostic::Kind::kFlow, -5, std::string(100000, 'm'), std::string(100000, 'h')};
  const auto read = std::get<Diagnostic>(decode_answer(encode(TraceAnswer(sent)), "x.lua"));
  EXPECT_EQ(read.line, 0);
  EXPECT_EQ(read.message.size(), size_t{16} << 10);
  EXPECT_EQ(read.hint.size(), size_t{16} << 10);
}

TEST(Messages, RequestsTravelWhole) {
  TraceRequest sent;
  sent.options = {.head_dim = 128, .group = 8, .layers = 36, .heads = 32, .seconds = 0.25, .memory = 12345, .instructions = 99};
  sent.source = std::string("return 1\0", 9);
  const auto read = std::get<TraceRequest>(decode_request(encode(sent)));
  EXPECT_EQ(read.options.head_dim, 128);
  EXPECT_EQ(read.options.group, 8);
  EXPECT_EQ(read.options.layers, 36);
  EXPECT_EQ(read.options.heads, 32);
  EXPECT_EQ(read.options.seconds, 0.25);
  EXPECT_EQ(read.options.memory, 12345U);
  EXPECT_EQ(read.options.instructions, 99);
  EXPECT_EQ(read.source, sent.source);
}

TEST(Messages, AnotherVersionIsRefused) {
  std::string bytes = encode(Greeting{});
  bytes[4] = static_cast<char>(bytes[4] + 1);
  std::string_view view = bytes;
  EXPECT_THROW(take_greeting(view), InputError);
}

}  // namespace
}  // namespace sluice::test
