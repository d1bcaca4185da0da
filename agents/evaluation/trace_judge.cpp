#include "agents/evaluation/trace_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "agents/traces/layer_replay.h"
#include "scripting/base/error.h"
#include "scripting/passes/cache_limit.h"

namespace sluice {
namespace {

constexpr int kBlock = 8;  // steps in a row whose mean counts as one observation: neighbours are alike

/// Of one step, layer and KV head; and sums of such.
struct Measured {
  double mass = 0;
  double regret = 0;
  double error = 0;
  double pages = 0;

  Measured& operator+=(const Measured& other) {
    mass += other.mass;
    regret += other.regret;
    error += other.error;
    pages += other.pages;
    return *this;
  }
  Measured operator/(double count) const { return {mass / count, regret / count, error / count, pages / count}; }
};

/// Distance of `output` from `dense` over the length of `dense`: [dim] each.
double relative_error(std::span<const float> output, std::span<const float> dense) {
  double distance = 0;
  double length = 0;
  for (size_t i = 0; i < dense.size(); ++i) {
    distance += std::pow(double{output[i]} - dense[i], 2);
    length += std::pow(double{dense[i]}, 2);
  }
  return length == 0 ? (distance == 0 ? 0 : 1) : std::sqrt(distance / length);
}

Measured measure(const LayerStep& step, const DenseSteps& dense, const LayerTensors& tensors, int at, int kv_head, int page) {
  const std::vector<double> masses = dense.masses(at, kv_head, page);
  const std::span<const int32_t> selected = step.selected_by(kv_head);
  const int available = pages_for(tensors.tokens_at(at), page);
  Measured measured;
  for (const int32_t position : selected) measured.mass += masses[static_cast<size_t>(position)];
  measured.pages = static_cast<double>(selected.size()) / available;
  measured.regret = std::max(0.0, best_mass(masses, selected.size()) - measured.mass);
  for (int head = kv_head * tensors.group(); head < (kv_head + 1) * tensors.group(); ++head) {
    const auto dim = static_cast<size_t>(tensors.dim);
    measured.error += relative_error(step.output.subspan(static_cast<size_t>(head) * dim, dim), dense.output(at, head));
  }
  measured.error /= tensors.group();
  return measured;
}

/// Means over blocks of steps.
class Blocks {
 public:
  /// A step of a window that has ended belongs to another block than those of the next.
  void add(size_t window, int step, const Measured& measured) {
    auto& [sum, count] = blocks_[{window, step / kBlock}];
    sum += measured;
    ++count;
  }
  Measured mean() const {
    Measured all;
    for (const auto& [place, block] : blocks_) all += block.first / block.second;
    return all / static_cast<double>(blocks_.size());
  }
  /// `sparse`: what the numbers count, where the rest is dense, which misses nothing.
  TraceScore score(double Measured::*number, double of_dense, double sparse) const {
    std::vector<double> values;
    for (const auto& [place, block] : blocks_) {
      values.push_back(sparse * (block.first / block.second).*number + (1 - sparse) * of_dense);
    }
    TraceScore score;
    for (const double value : values) score.mean += value / static_cast<double>(values.size());
    score.interval = values.size() < 2 ? Interval{score.mean, score.mean} : bootstrap_mean(values);
    return score;
  }

 private:
  std::map<std::pair<size_t, int>, std::pair<Measured, int>> blocks_;
};

double share_of_sparse_layers(const FlowGraph& traced, int layers) {
  if (traced.selection() == kNoNode) return 0;
  int sparse = 0;
  for (int layer = 0; layer < layers; ++layer) sparse += traced.layers.is_sparse(layer, layers) ? 1 : 0;
  return static_cast<double>(sparse) / layers;
}

TraceScores scores_of(const Blocks& blocks, double sparse) {
  return {blocks.score(&Measured::mass, 1, sparse), blocks.score(&Measured::regret, 0, sparse),
          blocks.score(&Measured::error, 0, sparse)};
}

}  // namespace

TraceJudge::TraceJudge(Device& device, AttentionTrace trace) : device_(device), trace_(std::move(trace)) {
  for (size_t window = 0; window < trace_.windows.size(); ++window) {
    dense_.emplace_back();
    for (const TracedLayer& layer : trace_.windows[window].layers) {
      try {
        dense_.back().emplace_back(layer.tensors);
      } catch (const InputError& error) {
        throw InputError(fmt::format("window {}, layer {}: {}", window, layer.layer, error.what()), error.hint());
      }
    }
  }
}

TraceResult TraceJudge::judge(const FlowScript& script) {
  const int layers = trace_.model_layers;
  FlowGraph traced =
      script.trace({.head_dim = trace_.head_dim(), .group = trace_.query_heads() / trace_.kv_heads(), .layers = layers});
  const double sparse = share_of_sparse_layers(traced, layers);
  const Plan plan = compile_for_one_layer(std::move(traced), device_);
  check_cache_size(plan);
  const int page = plan.layout.page;
  Blocks all;
  std::map<std::pair<int, int>, Blocks> by_head;
  for (size_t window = 0; window < trace_.windows.size(); ++window) {
    const std::vector<TracedLayer>& recorded = trace_.windows[window].layers;
    for (size_t i = 0; i < recorded.size(); ++i) {
      const LayerTensors& tensors = recorded[i].tensors;
      LayerReplay(device_, tensors, plan, {}).run([&](int step, const LayerStep& result) {
        for (int head = 0; head < tensors.kv_heads; ++head) {
          const Measured measured = measure(result, dense_[window][i], tensors, step, head, page);
          all.add(window, step, measured);
          by_head[{recorded[i].layer, head}].add(window, step, measured);
        }
      });
    }
  }
  TraceResult result;
  result.model = trace_.model;
  result.windows = static_cast<int>(trace_.windows.size());
  result.tokens = trace_.windows[0].layers[0].tensors.tokens;
  result.steps = trace_.windows[0].layers[0].tensors.steps;
  result.sparse_layers = sparse;
  result.pages_read = sparse * all.mean().pages + (1 - sparse);
  result.scores = scores_of(all, sparse);
  for (const auto& [place, blocks] : by_head) {
    result.heads.push_back({place.first, place.second, blocks.mean().pages, scores_of(blocks, 1)});
  }
  return result;
}

}  // namespace sluice
