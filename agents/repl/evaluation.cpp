#include "agents/repl/evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "kernels/reference/oracle_operators.h"
#include "kernels/reference/schedule.h"
#include "scripting/base/error.h"
#include "scripting/graph/ops.h"
#include "scripting/repl/subgraph.h"

namespace sluice::repl {

namespace {

constexpr int64_t kMostBytes = int64_t{512} << 20;

/// The reference keeps what later steps read of every page, and of one page everything.
void check_memory(const FlowGraph& graph, const std::vector<NodeId>& roots, int pages) {
  int64_t values = oracle::cost_a_page(graph, roots).numbers * pages;
  for (const Node& node : graph.nodes) values += elements_per_page(node.shape);
  const int64_t bytes = values * static_cast<int64_t>(sizeof(oracle::Bounded));
  if (bytes <= kMostBytes) return;
  throw InputError(fmt::format("the values would take {} MiB, and may take {} MiB", bytes >> 20, kMostBytes >> 20),
                   "reduce an axis earlier, or look at a shorter prompt");
}

}  // namespace

Watch::Watch(double seconds, const std::function<bool()>& interrupted)
    : seconds_(seconds),
      end_(std::chrono::steady_clock::now() +
           std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds))),
      interrupted_(interrupted) {}

void Watch::check() const {
  if (interrupted_ && interrupted_()) throw Interrupted();
  if (std::chrono::steady_clock::now() < end_) return;
  throw InputError(fmt::format("it takes longer than {} s", seconds_), "reduce an axis earlier, or look at a shorter prompt");
}

oracle::NodeValue evaluate(const FlowGraph& graph, NodeId node, const FlowGraph* flow, const Capture& capture, const Place& place,
                           const Watch& watch) {
  const FlowGraph part = subgraph(graph, node);
  const FlowGraph& steps = flow != nullptr ? *flow : graph;
  const oracle::Pace pace = [&] { watch.check(); };
  const int pages = oracle::pages_of(graph, capture.tokens());
  const double scale = 1 / std::sqrt(static_cast<double>(graph.geometry.head_dim));
  if (steps.sources.empty() && (part.reads_mass() || (!part.states.empty() && steps.saves_in(Stage::kAfter)))) {
    throw InputError("what attention gives follows from what the flow selects, and it selects nothing yet",
                     "for example return sluice.topk(s, {k = 8})");
  }
  oracle::States states;
  if (!part.states.empty()) {
    check_memory(steps, oracle::roots_of(steps), pages);
    for (int step = 0; step + 1 < capture.steps(); ++step) {
      const oracle::Row row = capture.row(place.layer, place.head, step);
      oracle::end_step(steps, row, oracle::run(steps, row, states, pace), scale, states, pace);
    }
  }
  const auto last = static_cast<NodeId>(part.nodes.size() - 1);
  check_memory(part, {last}, pages);
  const oracle::Row row = capture.row(place.layer, place.head);
  if (!part.reads_mass()) return oracle::value_of(part, last, row, states, pace);
  oracle::States before = states;
  const oracle::Tensor masses = oracle::masses(steps, row, oracle::run(steps, row, before, pace), scale);
  return oracle::value_of(part, last, row, states, pace, &masses);
}

ShownTensor shown(const FlowGraph& graph, NodeId node, const oracle::Tensor& tensor, int tokens) {
  const Node& computed = graph.nodes[static_cast<size_t>(node)];
  ShownTensor result;
  if (computed.op == Op::kField) result.type = name_of(graph.find_field(computed.attributes.field)->type);
  if (computed.op == Op::kKey || computed.op == Op::kValue) result.type = name_of(graph.geometry.kv);
  result.shape = tensor.shape;
  for (const oracle::Bounded& value : tensor.values) result.values.push_back(value.value);
  result.exists.assign(tensor.values.size(), true);
  const int pages = oracle::pages_of(graph, tokens);
  const oracle::Tokens held{graph.geometry.page, pages, tokens - (pages - 1) * graph.geometry.page};
  if (!has_axis(tensor.shape, Axis::kToken) || !has_axis(tensor.shape, Axis::kPage)) return result;
  oracle::for_each_index(tensor.shape,
                         [&](const oracle::Index& index, size_t at) { result.exists[at] = held.exists(tensor.shape, index); });
  return result;
}

std::vector<double> page_mass(const oracle::Row& row, int page) {
  const auto tokens = static_cast<size_t>(row.tokens);
  const size_t dim = row.keys.size() / tokens;
  const size_t heads = row.query.size() / dim;
  std::vector<double> mass((tokens + static_cast<size_t>(page) - 1) / static_cast<size_t>(page));
  std::vector<double> logits(tokens);
  for (size_t head = 0; head < heads; ++head) {
    for (size_t token = 0; token < tokens; ++token) {
      double product = 0;
      for (size_t d = 0; d < dim; ++d) {
        product += static_cast<double>(row.query[head * dim + d]) * static_cast<double>(row.keys[token * dim + d]);
      }
      logits[token] = product / std::sqrt(static_cast<double>(dim));
    }
    const double largest = *std::max_element(logits.begin(), logits.end());
    double total = 0;
    for (double& logit : logits) total += logit = std::exp(logit - largest);
    for (size_t token = 0; token < tokens; ++token) {
      mass[token / static_cast<size_t>(page)] += logits[token] / total / static_cast<double>(heads);
    }
  }
  return mass;
}

double mass_of(const std::vector<int32_t>& selected, const std::vector<double>& mass) {
  double sum = 0;
  for (const int32_t page : selected) sum += mass[static_cast<size_t>(page)];
  return sum;
}

}  // namespace sluice::repl
