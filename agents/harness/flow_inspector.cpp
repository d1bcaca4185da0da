#include "agents/harness/flow_inspector.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "agents/evaluation/trace_options.h"
#include "agents/http/http_problem.h"
#include "host/weights/model_name.h"
#include "kernels/device/device_refusal.h"
#include "kernels/device/plan_report.h"
#include "sandbox/wire/graph_wire.h"
#include "scripting/graph/ops.h"
#include "scripting/graph/pattern_report.h"
#include "scripting/graph/recompute.h"
#include "scripting/graph/text.h"
#include "scripting/passes/cache_limit.h"
#include "scripting/passes/canonical.h"
#include "store/folder/sodium.h"

namespace sluice {
namespace {

using nlohmann::json;

constexpr int64_t kBatch = 8;                     // of the step whose cost is shown
constexpr int64_t kTokens = 8192;                 // of each of its requests, where the model takes so many
constexpr const char* kFingerprintVersion = "1";  // another one whenever encode_graph writes anything otherwise
constexpr const char* kRefused = "refused";
constexpr int kCompilerThreads = 1;  // compiling for a CPU uses no more

std::string type_of(const FlowGraph& graph, const Node& node) {
  if (is_selection(node.op)) return "selection";
  if (node.op == Op::kSave) return "effect";
  if (node.op == Op::kKey || node.op == Op::kValue) return std::string(name_of(graph.geometry.kv));
  const Field* field = node.op == Op::kField ? graph.find_field(node.attributes.field) : nullptr;
  return std::string(name_of(field != nullptr ? field->type : DataType::kF32));
}

json node_document(const FlowGraph& graph, NodeId id) {
  const Node& node = graph.nodes.at(static_cast<size_t>(id));
  const bool has_shape = node.op != Op::kSave && !is_selection(node.op);
  return {{"id", id},
          {"op", name_of(node.op)},
          {"stage", name_of(node.stage)},
          {"type", type_of(graph, node)},
          {"shape", has_shape ? to_string(node.shape) : ""},
          {"inputs", node.inputs},
          {"text", to_text(graph, id)},
          {"line", node.where.line}};
}

}  // namespace

json graph_document(const FlowGraph& graph) {
  json nodes = json::array();
  for (size_t i = 0; i < graph.nodes.size(); ++i) nodes.push_back(node_document(graph, static_cast<NodeId>(i)));
  json fields = json::array();
  for (const Field& field : graph.fields) {
    fields.push_back(
        {{"name", field.name}, {"type", name_of(field.type)}, {"shape", to_string(field.shape)}, {"node", field.node}});
  }
  json states = json::array();
  for (const State& state : graph.states) states.push_back({{"name", state.name}, {"shape", to_string(state.shape)}});
  return {{"name", graph.name},
          {"page", graph.geometry.page},
          {"kv", name_of(graph.geometry.kv)},
          {"nodes", std::move(nodes)},
          {"fields", std::move(fields)},
          {"states", std::move(states)},
          {"selection", graph.selection() == kNoNode ? json(nullptr) : json(graph.selection())}};
}

json patterns_document(const std::vector<PatternFigures>& figures, int64_t tokens) {
  json patterns = json::array();
  for (const PatternFigures& each : figures) {
    const char* const role = each.role == PatternRole::kAlone ? "alone" : each.role == PatternRole::kAround ? "around" : "beside";
    json shares = json::array();
    for (const std::vector<double>& row : each.shares) {
      json& cells = shares.emplace_back(json::array());
      for (const double share : row) cells.push_back(std::round(share * 1000) / 1000);
    }
    patterns.push_back({{"text", each.text},
                        {"role", role},
                        {"layers", each.layers},
                        {"head", each.head},
                        {"heads", each.heads},
                        {"tokens", tokens},
                        {"kept", each.kept},
                        {"any_size", each.any_size},
                        {"pages_read", each.pages_read},
                        {"dense_prefill", each.dense_prefill},
                        {"blind", each.blind},
                        {"area", each.area},
                        {"area_exact", each.is_area_exact},
                        {"shares", std::move(shares)}});
  }
  return patterns;
}

json recompute_document(const Recompute& rule) {
  const char* const kind = rule.kind == Recompute::Kind::kNone ? "none" : rule.kind == Recompute::Kind::kAll ? "all" : "selected";
  json nodes = json::array();
  for (size_t i = 0; i < rule.graph.nodes.size(); ++i) nodes.push_back(node_document(rule.graph, static_cast<NodeId>(i)));
  return {{"rule", kind},
          {"layer", rule.layer},
          {"rows", rule.rows == kToEnd ? json(nullptr) : json(rule.rows)},
          {"nodes", std::move(nodes)}};
}

json document_of(const FlowInspection& inspection) {
  json graph = inspection.graph;
  for (json& pattern : graph["patterns"]) pattern.erase("shares");  // a picture, which is the artifact's
  return {{"name", inspection.name}, {"page", inspection.page}, {"graph", std::move(graph)}, {"plan", inspection.plan}};
}

std::vector<store::Artifact> artifacts_of(const FlowInspection& inspection) {
  return {{.name = "graph.json", .media_type = "application/json", .bytes = json_text(inspection.graph), .size = 0},
          {.name = "plan.txt", .media_type = "text/plain", .bytes = inspection.plan, .size = 0}};
}

std::string flow_fingerprint(const TracedShapes& traced, const std::string& device) {
  // Graphs are encoded by the numbers of operators, which another version of this program may count otherwise.
  std::string operators;
  for (size_t op = 0; op < kOpCount; ++op) operators += fmt::format("{} ", name_of(static_cast<Op>(op)));
  std::vector<std::string> parts = {kFingerprintVersion, operators};
  for (const auto& [graph, shape] : traced) {
    const bool has_methods = device != "cpu";  // of exact top-k; a CPU has one
    parts.push_back(graph ? encode_graph(canonical_form(*graph, shape.layers, has_methods)) : kRefused);
  }
  return store::hash_of({parts.begin(), parts.end()});
}

FlowInspector::FlowInspector(const std::string& model, std::string device)
    : model_(model_name(model)),
      config_(load_config(model)),
      device_name_(std::move(device)),
      device_(create_device(device_name_, kCompilerThreads)) {
  if (const std::string trace = shipped_trace(); !trace.empty()) replayed_ = trace_options(load_trace(trace));
}

FlowInspection FlowInspector::inspect(const FlowScript& script) {
  const FlowGraph traced = script.trace(trace_options(config_));
  const Compilation compilation = compile(traced);
  const Plan& plan = compilation.plan;
  require_device_takes(plan, device_name_);
  for (const Plan* program : plan.programs()) {
    check_cache_size(*program);
    if (program->graph.selection() == kNoNode) continue;
    const std::lock_guard lock(mutex_);
    device_->compile(*program, config_.layers, config_.kv_heads);
  }
  Workload workload;
  workload.model = model_;
  workload.layers = config_.layers;
  workload.kv_heads = config_.kv_heads;
  workload.tokens = config_.max_positions > 0 ? std::min<int64_t>(kTokens, config_.max_positions) : kTokens;
  workload.batch = kBatch;
  workload.device = device_name_;
  workload.bandwidth = usual_bandwidth(device_name_);
  json graph = graph_document(traced);
  const PlanReport report = plan_report(compilation, workload);
  graph["patterns"] = patterns_document(report.patterns, workload.tokens);
  if (traced.recompute != nullptr) graph["recompute"] = recompute_document(*traced.recompute);
  for (const FlowGraph& variant : traced.variants) {
    graph["variants"].push_back(graph_document(variant));
    graph["variants"].back()["name"] = variant.variant;
  }
  // A judge traces the script again for the shape of a trace, and there it may be another flow.
  TracedShapes shapes = {{traced, trace_options(config_)}};
  if (replayed_) {
    shapes.emplace_back(std::nullopt, *replayed_);
    try {
      shapes.back().first = script.trace(*replayed_);
    } catch (const InputError&) {  // then it is not replayed
    }
  }
  return {traced.name, traced.geometry.page, std::move(graph), report.text, flow_fingerprint(shapes, device_name_)};
}

}  // namespace sluice
