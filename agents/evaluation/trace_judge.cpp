#include "agents/evaluation/trace_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "agents/evaluation/same_flow.h"
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

/// [dim], of [query_heads, dim].
std::span<const float> of_head(std::span<const float> output, int head, int dim) {
  return output.subspan(static_cast<size_t>(head) * static_cast<size_t>(dim), static_cast<size_t>(dim));
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
    measured.error += relative_error(of_head(step.output, head, tensors.dim), dense.output(at, head));
  }
  measured.error /= tensors.group();
  return measured;
}

/// Means over steps, and over blocks of them.
class Blocks {
 public:
  /// `steps`: of a window.
  explicit Blocks(int steps) : of_window_(std::max(1, steps / kBlock)) {}

  /// A step of a window that has ended belongs to another block than those of the next; the last block of a window has what is
  /// left.
  void add(size_t window, int step, const Measured& measured) {
    auto& [sum, count] = blocks_[{window, std::min(step / kBlock, of_window_ - 1)}];
    sum += measured;
    ++count;
  }
  Measured mean() const {
    Measured all;
    int steps = 0;
    for (const auto& [place, block] : blocks_) {
      all += block.first;
      steps += block.second;
    }
    return all / steps;
  }
  /// `sparse`: what the numbers count, where the rest is dense. `most`: that the number can be.
  TraceScore score(double Measured::*number, double of_dense, double sparse, double most = 1) const {
    const auto weighed = [&](double value) { return sparse * value + (1 - sparse) * of_dense; };
    std::vector<double> values;
    for (const auto& [place, block] : blocks_) values.push_back(weighed((block.first / block.second).*number));
    TraceScore score{weighed(mean().*number), std::nullopt};
    if (values.size() < 2) return score;
    const Interval interval = bootstrap_mean(values);  // of few blocks beyond what there can be
    score.interval = {std::clamp(interval.low, 0.0, most), std::clamp(interval.high, 0.0, most)};
    return score;
  }

 private:
  int of_window_;
  std::map<std::pair<size_t, int>, std::pair<Measured, int>> blocks_;
};

/// Whether K and V lose by it what the recorded ones have.
bool is_narrow(DataType kv) { return kv == DataType::kE4M3 || kv == DataType::kE5M2; }

double share_of_sparse_layers(const FlowGraph& traced, int layers) {
  if (traced.selection() == kNoNode) return 0;
  int sparse = 0;
  for (int layer = 0; layer < layers; ++layer) sparse += traced.layers.is_sparse(layer, layers) ? 1 : 0;
  return static_cast<double>(sparse) / layers;
}

TraceScores scores_of(const Blocks& blocks, double dense_error, double sparse) {
  return {blocks.score(&Measured::mass, 1, sparse), blocks.score(&Measured::regret, 0, sparse),
          blocks.score(&Measured::error, dense_error, sparse, HUGE_VAL)};
}

}  // namespace

TraceJudge::TraceJudge(Device& device, AttentionTrace trace, int threads) : device_(device), trace_(std::move(trace)) {
  for (size_t window = 0; window < trace_.windows.size(); ++window) {
    dense_.emplace_back();
    for (const TracedLayer& layer : trace_.windows[window].layers) {
      try {
        dense_.back().emplace_back(layer.tensors, threads);
      } catch (const InputError& error) {
        throw InputError(fmt::format("window {}, layer {}: {}", window, layer.layer, error.what()), error.hint());
      }
    }
  }
}

void TraceJudge::replay(const Plan& plan, const std::function<void(size_t, size_t, int, const LayerStep&)>& take) {
  for (size_t window = 0; window < trace_.windows.size(); ++window) {
    const std::vector<TracedLayer>& recorded = trace_.windows[window].layers;
    for (size_t layer = 0; layer < recorded.size(); ++layer) {
      LayerReplay(device_, recorded[layer].tensors, plan, {}).run([&](int step, const LayerStep& result) {
        take(window, layer, step, result);
      });
    }
  }
}

double TraceJudge::dense_error(const FlowGraph& traced) {
  FlowGraph dense;
  dense.name = traced.name;
  dense.geometry = traced.geometry;
  dense.layers.rest_sparse = false;
  double sum = 0;
  int count = 0;
  replay(compile_for_one_layer(std::move(dense), device_), [&](size_t window, size_t layer, int step, const LayerStep& result) {
    const LayerTensors& tensors = trace_.windows[window].layers[layer].tensors;
    for (int head = 0; head < tensors.query_heads; ++head) {
      sum += relative_error(of_head(result.output, head, tensors.dim), dense_[window][layer].output(step, head));
      ++count;
    }
  });
  return sum / count;
}

TraceResult TraceJudge::judge(const FlowScript& script, const FlowGraph* asked) {
  const int layers = trace_.model_layers;
  FlowGraph traced =
      script.trace({.head_dim = trace_.head_dim(), .group = trace_.query_heads() / trace_.kv_heads(), .layers = layers});
  if (asked != nullptr) {
    if (const auto difference = difference_between(*asked, traced)) {
      throw InputError(
          fmt::format("for the shape of {} the script gives another flow: {}", trace_.model, *difference),
          "loops over heads, budgets and constants may follow the shape of a model; page size, layers and fields may not");
    }
  }
  const double sparse = share_of_sparse_layers(traced, layers);
  // Types that are not narrower than what was recorded cost dense layers nothing that could be told.
  const double of_dense = sparse < 1 && is_narrow(traced.geometry.kv) ? dense_error(traced) : 0;
  const Plan plan = compile_for_one_layer(std::move(traced), device_);
  check_cache_size(plan);
  const LayerTensors& first = trace_.windows[0].layers[0].tensors;
  Blocks all(first.steps);
  std::map<std::pair<int, int>, Blocks> by_head;
  replay(plan, [&](size_t window, size_t layer, int step, const LayerStep& result) {
    const TracedLayer& recorded = trace_.windows[window].layers[layer];
    for (int head = 0; head < recorded.tensors.kv_heads; ++head) {
      const Measured measured = measure(result, dense_[window][layer], recorded.tensors, step, head, plan.layout.page);
      if (!std::isfinite(measured.error)) throw InputError("outputs of attention are not finite on the recorded K and V");
      all.add(window, step, measured);
      by_head.try_emplace({recorded.layer, head}, first.steps).first->second.add(window, step, measured);
    }
  });
  TraceResult result;
  result.model = trace_.model;
  result.digest = trace_.digest;
  result.windows = static_cast<int>(trace_.windows.size());
  result.tokens = first.tokens;
  result.steps = first.steps;
  result.sparse_layers = sparse;
  result.pages_read = sparse * all.mean().pages + (1 - sparse);
  result.scores = scores_of(all, of_dense, sparse);
  for (const auto& [place, blocks] : by_head) {
    result.heads.push_back({place.first, place.second, blocks.mean().pages, scores_of(blocks, 0, 1)});
  }
  return result;
}

}  // namespace sluice
