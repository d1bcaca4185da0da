#include "scripting/lua/builder.h"

#include <fmt/format.h>

#include <algorithm>

#include "scripting/base/suggest.h"
#include "scripting/graph/ops.h"
#include "scripting/graph/shapes.h"
#include "scripting/graph/verify.h"
#include "scripting/graph/verify_parts.h"
#include "scripting/lua/arguments.h"

namespace sluice {

namespace {

bool is_pattern(const Datum& value) { return value.kind == Datum::Kind::kHandle && value.handle.kind == Handle::Kind::kPattern; }

}  // namespace

GraphBuilder::GraphBuilder(std::string file, int head_dim, int group, ParameterValues values)
    : patterns_(std::make_shared<std::vector<HeadPatterns>>()), parameters_(std::make_shared<Parameters>(std::move(values))) {
  where_.file = std::move(file);
  graph_.geometry.head_dim = head_dim;
  graph_.geometry.group = group;
}

void GraphBuilder::fail(const std::string& message, std::string hint) const { throw FlowError(where_, message, std::move(hint)); }

void GraphBuilder::declare(std::string name, int page, DataType kv, LayerNames layers,
                           std::vector<std::pair<std::string, DataType>> field_types) {
  if (is_declared()) fail(fmt::format("sluice.flow: the file declares a flow already, in line {}", graph_.where.line));
  graph_.name = std::move(name);
  graph_.geometry.page = page;
  graph_.geometry.kv = kv;
  layer_names_ = std::move(layers);
  field_types_ = std::move(field_types);
  declared_ = graph_.where = {where_.file, std::max(where_.line, 1)};
}

GraphBuilder GraphBuilder::make_variant(std::string name) const {
  GraphBuilder variant(where_.file, graph_.geometry.head_dim, graph_.geometry.group);
  variant.where_ = where_;
  variant.graph_.name = graph_.name;
  variant.graph_.variant = std::move(name);
  variant.graph_.where = where_;
  variant.graph_.geometry = graph_.geometry;
  variant.graph_.mass_rows = graph_.mass_rows;
  variant.graph_.patterns.dense_prefill = graph_.patterns.dense_prefill;
  variant.field_types_ = field_types_;
  variant.patterns_ = patterns_;
  variant.parameters_ = parameters_;
  variant.layer_names_ = layer_names_;
  return variant;
}

GraphBuilder GraphBuilder::make_recompute(int heads) const {
  GraphBuilder rule(where_.file, graph_.geometry.head_dim, graph_.geometry.group);
  rule.where_ = where_;
  rule.declared_ = declared_;
  rule.graph_.name = graph_.name;
  rule.graph_.where = graph_.where;
  rule.graph_.geometry = graph_.geometry;
  rule.graph_.geometry.group = std::min(heads, GraphLimits::kGroup);
  rule.heads_ = heads;
  rule.graph_.ranks_copies = true;
  rule.patterns_ = patterns_;
  rule.parameters_ = parameters_;
  rule.recompute_options_ = recompute_options_;
  return rule;
}

void GraphBuilder::choose_layers(const std::string& name) {
  graph_.layers.rest_sparse = layer_names_.rest == name;
  for (const auto& [layer, chosen] : layer_names_.layers) graph_.layers.sparse[layer] = chosen == name;
}

void GraphBuilder::leave_out_unused(bool has_after) {
  if (!has_after) graph_.mass_rows = kToEnd;
  if (graph_.patterns.empty()) graph_.patterns.dense_prefill = false;
}

NodeId GraphBuilder::emit(Op op, std::vector<NodeId> inputs, Attributes attributes, Shape shape) {
  const OpInfo& info = info_of(op);
  if (!stage_) {
    fail(fmt::format("{}: tensors exist inside flow.cache, flow.index, flow.after and flow.recompute only", spoken_name_of(op)),
         "move this line into one of them");
  }
  if (!exists_in(info, *stage_) && is_of_copies())
    fail(fmt::format("{}: is not an operator of flow.recompute", spoken_name_of(op)), "it has those of flow.index");
  if (!exists_in(info, *stage_)) {
    fail(fmt::format("{}: is not an operator of the {} stage", spoken_name_of(op), name_of(*stage_)),
         fmt::format("use it in flow.{}{}", info.in_cache ? "cache" : "index",
                     op == Op::kSum ? "; there is mean in both stages, and dot sums products" : ""));
  }
  if (graph_.nodes.size() >= GraphLimits::kNodes) {
    fail(fmt::format("the flow has more than {} operators", GraphLimits::kNodes), "a loop may be adding operators without end");
  }
  Node node{op, *stage_, std::move(inputs), std::move(shape), std::move(attributes), where_};
  node.shape = infer_shape(graph_, node);
  graph_.nodes.push_back(std::move(node));
  return static_cast<NodeId>(graph_.nodes.size() - 1);
}

NodeId GraphBuilder::constant(double value) {
  Attributes attributes;
  attributes.value = value;
  return emit(Op::kConstant, {}, std::move(attributes));
}

std::vector<std::string> GraphBuilder::member_names() const {
  std::vector<std::string> names = {"k", "v"};
  for (const Field& field : graph_.fields) names.push_back(field.name);
  for (const State& state : graph_.states) names.push_back(state.name);
  return names;
}

Handle GraphBuilder::read_member(const std::string& name) {
  if (!stage_) fail("c exists inside flow.cache, flow.index and flow.after only");
  if (is_of_copies()) return read_copy_fact(name);
  if (name == "k") return tensor(emit(Op::kKey, {}));
  if (name == "v") return tensor(emit(Op::kValue, {}));
  return *stage_ == Stage::kCache ? read_cache_member(name) : read_paged_member(name);
}

Handle GraphBuilder::read_copy_fact(const std::string& name) {
  const CopyFactInfo* const fact = find_copy_fact(name);
  if (fact == nullptr) {
    std::vector<std::string> names;
    for (const CopyFactInfo& each : copy_facts()) names.emplace_back(each.name);
    const std::string near = did_you_mean(name, names);
    fail(fmt::format("nothing is known of copied tokens that is called r.{:.40}", name), near);
  }
  if (find_state(name) < 0) {
    if (fact->by_head && heads_ > GraphLimits::kGroup) {
      fail(fmt::format("r.{} is by query head, of which the model has {}, and at most {} are supported", name, heads_,
                       GraphLimits::kGroup));
    }
    Shape shape = sluice::shape_of(*fact, graph_.geometry);
    check_shape(shape, fmt::format("r.{}", name), where_);
    if (elements_per_page(shape) > GraphLimits::kRowElements) {
      fail(fmt::format("r.{} {} has more than {} numbers a page", name, to_string(shape), GraphLimits::kRowElements),
           "smaller pages have fewer");
    }
    add_state(name, std::move(shape), 0);
  }
  return tensor(load(find_state(name)));
}

Handle GraphBuilder::read_cache_member(const std::string& name) {
  if (const Field* field = graph_.find_field(name)) return tensor(field->node);
  if (graph_.find_state(name))
    fail(fmt::format("c.{} is a state, which the cache stage cannot read", name), "read it in flow.index");
  fail(fmt::format("c.{} is not assigned yet", name), did_you_mean(name, member_names()));
}

Handle GraphBuilder::read_paged_member(const std::string& name) {
  if (graph_.find_field(name)) {
    Attributes attributes;
    attributes.field = name;
    return tensor(emit(Op::kField, {}, std::move(attributes)));
  }
  if (const int32_t state = find_state(name); state >= 0) return {Handle::Kind::kState, *stage_, state};
  fail(fmt::format("no field is called c.{}: flow.cache does not assign it", name), did_you_mean(name, member_names()));
}

void GraphBuilder::assign_member(const std::string& name, const Datum& value) {
  if (is_of_copies()) fail(fmt::format("r.{:.40} cannot be assigned", name), "flow.recompute keeps nothing: use a local");
  if (stage_ != Stage::kCache) {
    fail(fmt::format("c.{} cannot be assigned in flow.{}", name, name_of(stage_.value_or(Stage::kIndex))),
         "fields are assigned in flow.cache; states are kept with c.NAME:save(x)");
  }
  if (name == "k" || name == "v")
    fail(fmt::format("c.{} is the model's own and cannot be assigned", name), "choose another name");
  if (graph_.find_field(name) || graph_.find_state(name))
    fail(fmt::format("c.{} is assigned twice", name), "choose another name");
  if (value.kind != Datum::Kind::kHandle) {
    fail(fmt::format("c.{} wants a tensor and got {}", name, describe(value, graph_)),
         "for a number use sluice.fill(number, {})");
  }
  if (value.handle.kind == Handle::Kind::kDeclaration) {
    const Declaration& declaration = declarations_[static_cast<size_t>(value.handle.id)];
    return add_state(name, declaration.shape, declaration.value);
  }
  if (value.handle.kind != Handle::Kind::kTensor || value.handle.stage != Stage::kCache) {
    fail(fmt::format("c.{} wants a tensor and got {}", name, describe(value, graph_)));
  }
  if (graph_.fields.size() >= GraphLimits::kFields) fail(fmt::format("the flow has more than {} fields", GraphLimits::kFields));
  graph_.fields.push_back({name, value.handle.id, shape_of(value.handle.id), type_of_field(name), where_});
}

DataType GraphBuilder::type_of_field(const std::string& name) const {
  for (const auto& [field, type] : field_types_) {
    if (field == name) return type;
  }
  return graph_.geometry.kv;
}

Handle GraphBuilder::add_pattern(const HeadPatterns& pattern) {
  constexpr size_t kMostPatterns = 1000;
  if (patterns_->size() >= kMostPatterns) {
    fail(fmt::format("the script makes more than {} patterns", kMostPatterns), "a loop may be making patterns without end");
  }
  patterns_->push_back(pattern);
  return {Handle::Kind::kPattern, Stage::kCache, static_cast<int32_t>(patterns_->size() - 1)};
}

Handle GraphBuilder::add_joined(const Joined& joined) {
  constexpr size_t kMostJoined = 1000;
  if (joined_.size() >= kMostJoined) {
    fail(fmt::format("the script makes covers, and unites patterns with selections, more than {} times", kMostJoined),
         "a loop may do so without end");
  }
  joined_.push_back(joined);
  return {Handle::Kind::kJoined, Stage::kIndex, static_cast<int32_t>(joined_.size() - 1)};
}

std::optional<GraphBuilder::Joined> GraphBuilder::joined(const Handle& handle) const {
  if (handle.kind == Handle::Kind::kPattern) return Joined{kNoNode, pattern(handle.id)};
  if (handle.kind == Handle::Kind::kSelection) return Joined{handle.id, {}};
  if (handle.kind == Handle::Kind::kJoined) return joined_.at(static_cast<size_t>(handle.id));
  return {};
}

int GraphBuilder::read_layer_pattern(const Datum& value) {
  if (value.kind == Datum::Kind::kText && value.text == "full") return LayerPatterns::kNone;
  if (is_pattern(value)) {
    const int place = graph_.patterns.add(pattern(value.handle.id));
    if (place >= static_cast<int>(GraphLimits::kPatterns)) {
      fail(fmt::format("flow.pattern has more than {} patterns", GraphLimits::kPatterns),
           "layers that see alike share one: say the others with rest = ...");
    }
    return place;
  }
  fail(fmt::format("flow.pattern: got {} for a layer", describe(value, graph_)), "a layer has a pattern or is \"full\"");
}

void GraphBuilder::assign_pattern(const Datum& value) {
  if (stage_) fail("flow.pattern is assigned at the top of the file, not inside a stage");
  if (!graph_.patterns.empty()) fail(fmt::format("flow.pattern is assigned already, in line {}", graph_.patterns.where.line));
  graph_.patterns.where = where_;
  if (value.kind != Datum::Kind::kTable) {
    if (!is_pattern(value)) {
      fail(fmt::format("flow.pattern must be a pattern or a table of patterns by layer, and is {}", describe(value, graph_)),
           "for example flow.pattern = sluice.pattern.sink(4) | sluice.pattern.window(512)");
    }
    graph_.patterns.rest = read_layer_pattern(value);
    return;
  }
  // Lua's lists begin with 1, and layers do not.
  const size_t entries = value.entries.size();
  const auto is_of_list = [&](const auto& each) {
    return each.key.kind == Datum::Kind::kNumber && each.key.number >= 1 && each.key.number <= static_cast<double>(entries);
  };
  if (entries > 1 && std::all_of(value.entries.begin(), value.entries.end(), is_of_list)) {
    fail(fmt::format("flow.pattern is a list, which begins with layer 1 of layers 0 to {}", entries),
         "begin it with [0] = ..., or say rest = \"full\"");
  }
  for (const auto& [key, of_layer] : value.entries) {
    if (key.kind == Datum::Kind::kText && key.text == "rest") {
      graph_.patterns.rest = read_layer_pattern(of_layer);
      continue;
    }
    const std::optional<int> layer = key.kind == Datum::Kind::kNumber ? whole_number(key.number) : std::nullopt;
    if (!layer) {
      fail(fmt::format("flow.pattern: {} is no layer", describe(key, graph_)),
           "layers are numbered from 0, from the end with -1, and \"rest\" is all others");
    }
    graph_.patterns.layers[*layer] = read_layer_pattern(of_layer);
  }
  if (graph_.patterns.empty())
    fail("flow.pattern names no pattern", "a table by layer: {[0] = \"full\", rest = sluice.pattern.window(512)}");
}

Handle GraphBuilder::declare_fill(double value, Shape shape) {
  if (stage_ != Stage::kCache)
    fail("cfill: declares a state in flow.cache", "in flow.index use sluice.load(name, {axes = ..., init = ...})");
  if (declarations_.size() >= GraphLimits::kStates) fail(fmt::format("the flow has more than {} states", GraphLimits::kStates));
  shape.insert(shape.begin(), {Axis::kPage, kDynamic});
  check_shape(shape, "cfill", where_);
  declarations_.push_back({value, std::move(shape)});
  return {Handle::Kind::kDeclaration, *stage_, static_cast<int32_t>(declarations_.size() - 1)};
}

int32_t GraphBuilder::find_state(const std::string& name) const {
  for (size_t i = 0; i < graph_.states.size(); ++i) {
    if (graph_.states[i].name == name) return static_cast<int32_t>(i);
  }
  return -1;
}

void GraphBuilder::add_state(const std::string& name, Shape shape, double initial) {
  if (graph_.states.size() >= GraphLimits::kStates) fail(fmt::format("the flow has more than {} states", GraphLimits::kStates));
  graph_.states.push_back({name, std::move(shape), initial, where_});
}

int32_t GraphBuilder::state(const std::string& name, const std::optional<Shape>& shape, std::optional<double> initial) {
  if (is_of_copies()) fail("flow.recompute runs once a prompt, and has no states", "what is known of copies is r.NAME");
  const int32_t known = find_state(name);
  if (known < 0) {
    if (!shape) {
      std::vector<std::string> names;
      for (const State& state : graph_.states) names.push_back(state.name);
      fail(fmt::format("load: no state is called \"{}\"", name),
           names.empty() ? fmt::format("declare it: sluice.load(\"{}\", {{axes = {{\"page\"}}, init = 0}})", name)
                         : did_you_mean(name, names));
    }
    if (graph_.find_field(name)) fail(fmt::format("load: \"{}\" is a field", name), "give the state another name");
    add_state(name, *shape, initial.value_or(0));
    return static_cast<int32_t>(graph_.states.size() - 1);
  }
  const State& declared = graph_.states[static_cast<size_t>(known)];
  if ((shape && *shape != declared.shape) || (initial && *initial != declared.initial)) {
    fail(fmt::format("load: state \"{}\" is declared as {} = {} in line {}", name, to_string(declared.shape), declared.initial,
                     declared.where.line),
         "declare a state once and load it by its name alone elsewhere");
  }
  return known;
}

NodeId GraphBuilder::load(int32_t state) {
  Attributes attributes;
  attributes.field = graph_.states[static_cast<size_t>(state)].name;
  return emit(Op::kLoad, {}, std::move(attributes));
}

void GraphBuilder::save(int32_t state, NodeId value, int last) {
  const State& declared = graph_.states[static_cast<size_t>(state)];
  for (const NodeId save : graph_.saves) {
    if (graph_.nodes[static_cast<size_t>(save)].attributes.field == declared.name) {
      fail(fmt::format("save: state \"{}\" is saved already in line {}", declared.name,
                       graph_.nodes[static_cast<size_t>(save)].where.line),
           "a step keeps one value; save the final one");
    }
  }
  if (shape_of(value) != declared.shape) {
    fail(fmt::format("save: state \"{}\" is {} and got {}", declared.name, to_string(declared.shape), to_string(shape_of(value))),
         "declare the state with the axes that are saved, in their order");
  }
  Attributes attributes;
  attributes.field = declared.name;
  attributes.last = last;
  graph_.saves.push_back(emit(Op::kSave, {value}, std::move(attributes)));
}

void GraphBuilder::evict(NodeId score, Eviction eviction) {
  constexpr const char* kScore = "evict_score";
  if (graph_.eviction) {
    fail(fmt::format("evict: the flow says who leaves already, in line {}", graph_.eviction->where.line),
         "a layer keeps one budget; unite the scores");
  }
  const Shape wanted = {{Axis::kPage, kDynamic}, {Axis::kToken, graph_.geometry.page}};
  if (shape_of(score) != wanted) {
    fail(fmt::format("evict: wants a score [page, token] and got {}", to_string(shape_of(score))),
         has_axis(shape_of(score), Axis::kHead) ? "all query heads of a KV head keep the same tokens: score:sum(\"head\")"
                                                : "tokens leave one by one, so each has a score");
  }
  if (graph_.find_state(kScore) != nullptr || graph_.find_field(kScore) != nullptr) {
    fail(fmt::format("evict: \"{}\" is the name of what it keeps", kScore), "call your own field or state otherwise");
  }
  add_state(kScore, wanted, 0);
  save(static_cast<int32_t>(graph_.states.size() - 1), score);
  eviction.score = kScore;
  eviction.where = where_;
  graph_.eviction = std::move(eviction);
}

void GraphBuilder::attend_to_all() {
  begin_stage(Stage::kIndex);
  Attributes attributes;
  attributes.last = GraphLimits::kPages;  // no request has more
  graph_.attend_to(emit(Op::kWindow, {}, std::move(attributes)));
}

void GraphBuilder::check_states() const {
  for (const State& state : graph_.states) {
    if (graph_.eviction && state.name == graph_.eviction->score) continue;
    const auto saves = [&](NodeId save) { return graph_.nodes[static_cast<size_t>(save)].attributes.field == state.name; };
    if (std::none_of(graph_.saves.begin(), graph_.saves.end(), saves)) {
      throw FlowError(state.where, fmt::format("state \"{}\" is never saved, so it would keep its first value", state.name),
                      fmt::format("save it in flow.index or flow.after: sluice.save(\"{}\", x)", state.name));
    }
    const auto loads = [&](const Node& node) { return node.op == Op::kLoad && node.attributes.field == state.name; };
    const auto attends = [&](const AttentionSource& source) { return source.keys == state.name || source.values == state.name; };
    if (std::none_of(graph_.nodes.begin(), graph_.nodes.end(), loads) &&
        std::none_of(graph_.sources.begin(), graph_.sources.end(), attends)) {
      const NodeId save = *std::find_if(graph_.saves.begin(), graph_.saves.end(), saves);
      throw FlowError(graph_.nodes[static_cast<size_t>(save)].where,
                      fmt::format("state \"{}\" is saved and never loaded, so it would change nothing", state.name),
                      fmt::format("load it in flow.index or flow.after: sluice.load(\"{}\")", state.name));
    }
  }
}

void GraphBuilder::check_field_types(const std::vector<FlowGraph>& programs) const {
  std::vector<std::string> names;
  for (const FlowGraph& program : programs) {
    for (const Field& field : program.fields) names.push_back(field.name);
  }
  for (const auto& [name, type] : field_types_) {
    if (std::find(names.begin(), names.end(), name) != names.end()) continue;
    throw FlowError(declared_,
                    fmt::format("sluice.flow: fields gives \"{}\" a type, and flow.cache does not assign c.{}", name, name),
                    did_you_mean(name, names));
  }
}

void GraphBuilder::decode_under(const HeadPatterns& pattern) {
  if (!graph_.patterns.empty()) {
    fail("flow.index returns a pattern, and flow.pattern is another", "say flow.pattern = a & b, and leave flow.index out");
  }
  if (graph_.saves_in(Stage::kIndex)) fail("flow.index returns a pattern, and saves a state that nothing would read");
  graph_.patterns.where = where_;
  graph_.patterns.rest = graph_.patterns.add(pattern);
  graph_.patterns.dense_prefill = true;
}

void GraphBuilder::check_after(int index_line, int line) const {
  if (line == 0 && graph_.mass_rows != kToEnd) {
    throw FlowError(graph_.where, "sluice.flow: prompt_mass is for flows with flow.after",
                    "it says which rows of a prompt flow.after(q, c, mass) sees the sum of");
  }
  if (line > 0 && index_line == 0 && !graph_.eviction) verifying::refuse_idle_after({where_.file, line});
  if (line > 0 && !graph_.saves_in(Stage::kAfter)) {
    throw FlowError({where_.file, line}, "flow.after saves no state and evicts nobody, so it would change nothing",
                    "keep what the next step reads: sluice.save(\"name\", x)");
  }
}

bool GraphBuilder::attend_to(const Datum& returned) {
  const std::optional<Joined> selected = returned.kind == Datum::Kind::kHandle ? joined(returned.handle) : std::nullopt;
  if (!selected || selected->selection == kNoNode) return false;
  graph_.attend_to(selected->selection);
  if (selected->beside) graph_.sources.front().beside = selected->beside->of_head(0);
  if (const auto& cover = selected->cover) {
    graph_.sources.push_back({.selection = cover->preserves ? cover->tail : selected->selection,
                              .others = true,
                              .keys = cover->keys,
                              .values = cover->values,
                              .bias = cover->bias,
                              .beside = {},
                              .shares = cover->preserves,
                              .group_pages = cover->group_pages,
                              .opened = cover->opened});
  }
  return true;
}

Recompute GraphBuilder::finish_recompute(const Datum& returned, int line) {
  set_line(line);
  Recompute rule;
  rule.where = where_;
  const RecomputeOptions options = recompute_options_.value_or(RecomputeOptions());
  rule.layer = options.layer;
  rule.rows = options.rows;
  const bool is_text = returned.kind == Datum::Kind::kText;
  if (is_text && (returned.text == "none" || returned.text == "all")) {
    rule.kind = returned.text == "none" ? Recompute::Kind::kNone : Recompute::Kind::kAll;
    return rule;
  }
  const std::optional<Joined> selected = returned.kind == Datum::Kind::kHandle ? joined(returned.handle) : std::nullopt;
  if (!selected || selected->selection == kNoNode || selected->beside || selected->cover) {
    const bool is_more = selected && selected->selection != kNoNode;
    fail(fmt::format("flow.recompute must return a selection, \"none\" or \"all\" and returned {}",
                     is_more ? "one that has more" : describe(returned, graph_)),
         "for example return sluice.topk_tokens(r.mass:sum(\"head\"), {ratio = 0.15})");
  }
  graph_.attend_to(selected->selection);
  rule.graph = std::move(graph_);
  verify_recompute(rule);
  return rule;
}

FlowGraph GraphBuilder::finish(const Datum& returned, int index_line, int after_line) {
  const auto is_selection_node = [](const Node& node) { return is_selection(node.op); };
  const bool made_one = std::any_of(graph_.nodes.begin(), graph_.nodes.end(), is_selection_node);
  const std::optional<Joined> selected = returned.kind == Datum::Kind::kHandle ? joined(returned.handle) : std::nullopt;
  if (selected && selected->selection == kNoNode) {
    set_line(index_line);
    decode_under(*selected->beside);
  } else if (!attend_to(returned) && index_line > 0) {
    set_line(index_line);
    fail(fmt::format("flow.index must return a selection of pages and returned {}", describe(returned, graph_)),
         made_one ? "the flow makes a selection: write return before it"
                  : "end it with, for example, return sluice.topk(score, {k = 32})");
  }
  check_after(index_line, after_line);
  check_states();
  verify(graph_);
  verifying::verify_tails(graph_);
  return std::move(graph_);
}

}  // namespace sluice
