#include "sandbox/wire/graph_wire.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "sandbox/wire/pattern_wire.h"
#include "sandbox/wire/wire.h"
#include "scripting/graph/ops.h"
#include "scripting/graph/recompute.h"
#include "scripting/graph/verify.h"

namespace sluice {

namespace {

constexpr size_t kMostAxes = static_cast<size_t>(Axis::kSub) + 1;
constexpr size_t kMostInputs = 4;       // of where
constexpr int32_t kLastLine = 1 << 20;  // sources have at most 64 KiB
constexpr int32_t kLastInteger = INT32_MAX;

class GraphWriter {
 public:
  explicit GraphWriter(WireWriter& writer) : writer_(writer) {}

  void write(const FlowGraph& graph) {
    writer_.text(graph.name);
    put(graph.where);
    put(graph.geometry.head_dim);
    put(graph.geometry.group);
    put(graph.geometry.page);
    put(graph.geometry.kv);
    put(graph.layers);
    put(graph.patterns);
    put_all(graph.nodes);
    put_all(graph.fields);
    put_all(graph.states);
    put_all(graph.saves);
    put_all(graph.sources);
    put(graph.mass_rows);
    put(graph.eviction.has_value());
    if (graph.eviction) put(*graph.eviction);
    put(graph.variant);
    put(static_cast<uint32_t>(graph.variants.size()));
    for (const FlowGraph& variant : graph.variants) write(variant);
    put(graph.recompute != nullptr);
    if (graph.recompute != nullptr) put(*graph.recompute);
  }

 private:
  template <typename Number>
  void put(Number value) {
    writer_.number(value);
  }
  void put(const std::string& value) { writer_.text(value); }
  void put(const SourceLocation& where) { put(where.line); }

  template <typename Item>
  void put_all(const std::vector<Item>& items) {
    put(static_cast<uint32_t>(items.size()));
    for (const Item& item : items) put(item);
  }
  void put(const std::vector<float>& kernel) { put_all(kernel); }

  void put(const Shape& shape) {
    put(static_cast<uint8_t>(shape.size()));
    for (const auto& [axis, extent] : shape) {
      put(axis);
      put(extent);
    }
  }

  void put(const LayerChoice& layers) {
    put(layers.rest_sparse);
    put(static_cast<uint32_t>(layers.sparse.size()));
    for (const auto& [layer, sparse] : layers.sparse) {
      put(layer);
      put(sparse);
    }
  }

  void put(const LayerPatterns& patterns) {
    put(patterns.where);
    put(patterns.dense_prefill);
    put_all(patterns.patterns);
    put(patterns.rest);
    put(static_cast<uint32_t>(patterns.layers.size()));
    for (const auto& [layer, place] : patterns.layers) {
      put(layer);
      put(place);
    }
  }

  void put(const HeadPatterns& patterns) {
    put(static_cast<uint32_t>(patterns.each().size()));
    for (const Pattern& each : patterns.each()) put(each);
  }

  void put(const Pattern& pattern) { put_pattern(writer_, pattern); }

  void put(const AttentionSource& source) {
    put(source.selection);
    put(source.keys);
    put(source.values);
    put(source.bias);
    put(source.others);
    put(source.shares);
    put(source.group_pages);
    put(source.opened);
    put(source.beside.has_value());
    if (source.beside) put(*source.beside);
  }

  void put(const Eviction& eviction) {
    put(eviction.score);
    put(eviction.budget);
    put(eviction.first);
    put(eviction.recent);
    put(eviction.chunk);
    put(eviction.keep.has_value());
    if (eviction.keep) put(*eviction.keep);
    put(eviction.where);
  }

  void put(const Recompute& rule) {
    put(rule.kind);
    put(rule.layer);
    put(rule.rows);
    put(rule.where);
    if (rule.kind == Recompute::Kind::kSelected) write(rule.graph);
  }

  void put(const Node& node) {
    put(node.op);
    put(node.stage);
    put(static_cast<uint8_t>(node.inputs.size()));
    for (const NodeId input : node.inputs) put(input);
    put(node.shape);
    if (is_op(node.op)) {
      for_each_attribute(node.op, [&](auto member, std::string_view) { put(node.attributes.*member); });
    }
    put(node.where);
  }

  void put(const Field& field) {
    put(field.name);
    put(field.node);
    put(field.shape);
    put(field.type);
    put(field.where);
  }

  void put(const State& state) {
    put(state.name);
    put(state.shape);
    put(state.initial);
    put(state.where);
  }

  WireWriter& writer_;
};

class GraphReader {
 public:
  GraphReader(std::string_view bytes, const std::string& file) : reader_(bytes), file_(file) {}

  FlowGraph read() {
    FlowGraph graph = read_program(GraphLimits::kVariants, true);
    reader_.finish();
    return graph;
  }

 private:
  /// A graph, with so many variants at most. `is_whole`: of a flow, which may say what is computed again.
  FlowGraph read_program(int most_variants, bool is_whole) {
    graph_ = {};
    graph_.name = name("the flow's name");
    graph_.where = where();
    graph_.geometry.head_dim = reader_.integer("the head's size", 1, GraphLimits::kHeadDim);
    graph_.geometry.group = reader_.integer("the group", 1, GraphLimits::kGroup);
    graph_.geometry.page = reader_.integer("the page's size", 1, kLastInteger);
    graph_.geometry.kv = reader_.one_of("the KV type", DataType::kE5M2);
    read_layers();
    read_patterns();
    read_all(graph_.nodes, "operators", GraphLimits::kNodes, [this] { return node(); });
    read_all(graph_.fields, "fields", GraphLimits::kFields, [this] { return field(); });
    read_all(graph_.states, "states", GraphLimits::kStates, [this] { return state(); });
    read_all(graph_.saves, "saves", GraphLimits::kStates, [this] { return id("a save", graph_.nodes.size()); });
    read_all(graph_.sources, "sources", GraphLimits::kSources, [this] { return source(); });
    graph_.mass_rows = reader_.integer("the rows of a prompt", 0, kToEnd);
    if (reader_.flag("whether tokens are evicted")) graph_.eviction = eviction();
    graph_.variant = name("a variant's name");
    FlowGraph graph = std::move(graph_);
    const size_t variants = reader_.count("variants", static_cast<size_t>(most_variants));
    for (size_t i = 0; i < variants; ++i) graph.variants.push_back(read_program(0, false));
    const bool has_rule = reader_.flag("whether copies are computed again");
    if (has_rule && !is_whole) WireReader::refuse("whether copies are computed again", "is said of a part of a flow");
    if (has_rule) graph.recompute = std::make_shared<const Recompute>(recompute());
    return graph;
  }

  Recompute recompute() {
    Recompute rule;
    rule.kind = reader_.one_of("a rule", Recompute::Kind::kAll);
    rule.layer = reader_.integer("a layer", 0, GraphLimits::kLayers - 1);
    rule.rows = reader_.integer("the rows that look", 1, kToEnd);
    rule.where = where();
    if (rule.kind != Recompute::Kind::kSelected) return rule;
    rule.graph = read_program(0, false);
    rule.graph.ranks_copies = true;
    return rule;
  }

  int32_t node_count() const { return static_cast<int32_t>(graph_.nodes.size()); }

  SourceLocation where() { return {file_, reader_.integer("a line", 0, kLastLine)}; }

  /// Names become parts of generated code and of file names.
  std::string name(std::string_view what) {
    std::string text = reader_.text(what, GraphLimits::kNameLength);
    const auto is_plain = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
    };
    if (!std::all_of(text.begin(), text.end(), is_plain)) WireReader::refuse(what, "has a character that no name has");
    return text;
  }

  NodeId id(std::string_view what, size_t end) {
    if (end == 0) WireReader::refuse(what, "stands before the first operator");
    return reader_.integer(what, 0, static_cast<int32_t>(end) - 1);
  }

  template <typename Item, typename Read>
  void read_all(std::vector<Item>& items, std::string_view what, size_t most, Read read) {
    const size_t count = reader_.count(what, most);
    for (size_t i = 0; i < count; ++i) items.push_back(read());
  }

  void read_layers() {
    graph_.layers.rest_sparse = reader_.flag("the mode of the other layers");
    const size_t count = reader_.count("layers", GraphLimits::kLayers);
    int32_t next = -GraphLimits::kLayers;
    for (size_t i = 0; i < count; ++i) {
      const int32_t layer = reader_.integer("a layer", next, GraphLimits::kLayers - 1);
      graph_.layers.sparse.emplace_hint(graph_.layers.sparse.end(), layer, reader_.flag("the mode of a layer"));
      next = layer + 1;
    }
  }

  void read_patterns() {
    LayerPatterns& patterns = graph_.patterns;
    patterns.where = where();
    patterns.dense_prefill = reader_.flag("dense prefill");
    read_all(patterns.patterns, "patterns", GraphLimits::kPatterns, [this] { return head_patterns(); });
    const auto last = static_cast<int32_t>(patterns.patterns.size()) - 1;
    patterns.rest = reader_.integer("the pattern of the other layers", LayerPatterns::kNone, last);
    const size_t count = reader_.count("layers with patterns", GraphLimits::kLayers);
    int32_t next = -GraphLimits::kLayers;
    for (size_t i = 0; i < count; ++i) {
      const int32_t layer = reader_.integer("a layer with a pattern", next, GraphLimits::kLayers - 1);
      patterns.layers.emplace_hint(patterns.layers.end(), layer,
                                   reader_.integer("the pattern of a layer", LayerPatterns::kNone, last));
      next = layer + 1;
    }
  }

  HeadPatterns head_patterns() {
    std::vector<Pattern> heads;
    read_all(heads, "patterns of heads", HeadPatterns::kMost, [this] { return pattern(); });
    return HeadPatterns::of(std::move(heads));
  }

  Pattern pattern() { return take_pattern(reader_); }

  Eviction eviction() {
    Eviction eviction;
    eviction.score = name("the score of those who leave");
    eviction.budget = reader_.integer("a budget", 1, GraphLimits::kTokens);
    eviction.first = reader_.integer("the first tokens", 0, GraphLimits::kTokens);
    eviction.recent = reader_.integer("recent tokens", 1, GraphLimits::kTokens);
    eviction.chunk = reader_.integer("a chunk", 0, GraphLimits::kTokens);
    if (reader_.flag("whether a pattern is kept")) eviction.keep = pattern();
    eviction.where = where();
    return eviction;
  }

  Shape shape() {
    const auto rank = reader_.number<uint8_t>("a shape");
    if (rank > kMostAxes) WireReader::refuse("a shape", "has too many axes");
    Shape shape;
    for (int i = 0; i < rank; ++i) {
      const Axis axis = reader_.one_of("an axis", Axis::kSub);
      const int32_t extent = reader_.integer("an extent", kDynamic, static_cast<int32_t>(GraphLimits::kElements));
      if ((axis == Axis::kPage) != (extent == kDynamic) || extent == 0) WireReader::refuse("an extent", "does not fit its axis");
      shape.push_back({axis, extent});
    }
    return shape;
  }

  void get(double& value, std::string_view what) { value = reader_.real(what); }
  void get(int& value, std::string_view what) { value = reader_.number<int32_t>(what); }
  void get(Axis& value, std::string_view what) { value = reader_.one_of(what, Axis::kSub); }
  void get(Compare& value, std::string_view what) { value = reader_.one_of(what, Compare::kLe); }
  void get(TopKMethod& value, std::string_view what) { value = reader_.one_of(what, TopKMethod::kGvr); }
  void get(std::string& value, std::string_view what) { value = name(what); }
  void get(std::vector<float>& kernel, std::string_view what) {
    read_all(kernel, what, GraphLimits::kKernel, [&] {
      const auto tap = reader_.number<float>(what);
      if (!std::isfinite(tap)) WireReader::refuse(what, "holds a number that is not finite");
      return tap;
    });
  }

  Node node() {
    Node node;
    node.op = reader_.one_of("an operator", static_cast<Op>(kOpCount - 1));
    node.stage = reader_.one_of("a stage", Stage::kAfter);
    const auto inputs = reader_.number<uint8_t>("operands");
    if (inputs > kMostInputs) WireReader::refuse("operands", "are too many");
    for (int i = 0; i < inputs; ++i) node.inputs.push_back(id("an operand", graph_.nodes.size()));
    node.shape = shape();
    for_each_attribute(node.op, [&](auto member, std::string_view what) { get(node.attributes.*member, what); });
    node.where = where();
    return node;
  }

  AttentionSource source() {
    AttentionSource source;
    source.selection = id("a selection", graph_.nodes.size());
    source.keys = name("the name of keys");
    source.values = name("the name of values");
    source.bias = reader_.integer("a bias", kNoNode, node_count() - 1);
    source.others = reader_.flag("the pages of a source");
    source.shares = reader_.flag("the weights of a source");
    source.group_pages = reader_.integer("the pages of a group", 1, GraphLimits::kPages);
    source.opened = reader_.integer("open groups", kNoNode, node_count() - 1);
    if (reader_.flag("tokens beside a selection")) source.beside = pattern();
    return source;
  }

  Field field() {
    Field field;
    field.name = name("a field's name");
    field.node = id("a field's value", graph_.nodes.size());
    field.shape = shape();
    field.type = reader_.one_of("a field's type", DataType::kE5M2);
    field.where = where();
    return field;
  }

  State state() {
    State state;
    state.name = name("a state's name");
    state.shape = shape();
    state.initial = reader_.real("a state's first value");
    state.where = where();
    return state;
  }

  WireReader reader_;
  const std::string& file_;
  FlowGraph graph_;
};

}  // namespace

std::string encode_graph(const FlowGraph& graph) {
  WireWriter writer;
  GraphWriter(writer).write(graph);
  return writer.bytes();
}

FlowGraph decode_graph(std::string_view bytes, const std::string& file) { return GraphReader(bytes, file).read(); }

}  // namespace sluice
