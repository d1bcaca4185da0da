#include "scripting/passes/traffic.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "scripting/graph/selections.h"

namespace sluice {

namespace {

double element_bytes(const FlowGraph& graph, const Node& node) {
  if (node.op == Op::kField) return static_cast<double>(size_of(graph.find_field(node.attributes.field)->type));
  if (node.op == Op::kKey || node.op == Op::kValue) return static_cast<double>(size_of(graph.geometry.kv));
  return sizeof(float);
}

double bytes_of(const FlowGraph& graph, NodeId id, double pages) {
  const Node& node = graph.nodes[static_cast<size_t>(id)];
  const double rows = has_axis(node.shape, Axis::kPage) ? pages : 1;
  return rows * static_cast<double>(elements_per_page(node.shape)) * element_bytes(graph, node);
}

/// Pages that a selection by itself keeps, of `pages` or more; a threshold without a maximum may keep all.
double budget_of(Op op, const Attributes& a, double pages, int page) {
  if (op == Op::kTopKTokens) return std::max<double>(a.k + a.first + a.last, std::ceil(a.ratio * pages * page));  // one in each
  if (op == Op::kWindow) return a.first + a.last;
  if (op == Op::kThreshold || op == Op::kTopP) return a.max_pages > 0 ? a.max_pages : pages;
  return std::max<double>(a.k + a.first + a.last, std::ceil(a.ratio * pages));
}

}  // namespace

Traffic traffic_of_step(const Plan& plan, const PlanStep& step, double pages) {
  Traffic traffic;
  for (const NodeId id : step.nodes) {
    const Op op = plan.graph.nodes[static_cast<size_t>(id)].op;
    if (op == Op::kField || op == Op::kKey || op == Op::kValue) traffic.fields += bytes_of(plan.graph, id, pages);
    if (op == Op::kMass) traffic.buffers += 2 * bytes_of(plan.graph, id, pages);
    if (op == Op::kLoad) traffic.state += bytes_of(plan.graph, id, pages);
    if (op == Op::kSave) traffic.state += bytes_of(plan.graph, plan.graph.nodes[static_cast<size_t>(id)].inputs[0], pages);
  }
  if (step.kind == StepKind::kSelect) return traffic;
  for (const NodeId id : step.outputs) traffic.buffers += 2 * bytes_of(plan.graph, id, pages);
  return traffic;
}

double refresh_bytes(const Plan& plan) {
  double bytes = 0;
  for (const NodeId id : plan.cache) {
    const Op op = plan.graph.nodes[static_cast<size_t>(id)].op;
    if (op == Op::kKey || op == Op::kValue) bytes += bytes_of(plan.graph, id, 1);
  }
  for (const Field& field : plan.graph.fields)
    bytes += static_cast<double>(elements_per_page(field.shape)) * static_cast<double>(size_of(field.type));
  return bytes;
}

double selected_pages(const FlowGraph& graph, double pages, double beside) {
  double budget = beside;
  for (const NodeId id : leaf_selections(graph)) {
    const Node& node = graph.nodes[static_cast<size_t>(id)];
    budget += budget_of(node.op, node.attributes, pages, graph.geometry.page);
  }
  return std::min(pages, budget);
}

double summary_bytes(const FlowGraph& graph, double pages, double selected) {
  double bytes = 0;
  for (const AttentionSource& source : graph.sources) {
    if (source.keys == "k") continue;
    // Entries that share their weights are read for the pages that are opened, too: their keys, at least.
    const double entries = source.shares ? pages : source.others ? pages - selected : selected;
    for (const std::string& name : {source.keys, source.values}) {
      const Field* const field = graph.find_field(name);
      const Shape& shape = field == nullptr ? graph.find_state(name)->shape : field->shape;
      const size_t number = size_of(field == nullptr ? DataType::kF32 : field->type);
      bytes += entries * static_cast<double>(elements_per_page(shape)) * static_cast<double>(number);
    }
  }
  return bytes;
}

}  // namespace sluice
