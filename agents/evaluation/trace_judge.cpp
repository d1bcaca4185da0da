#include "agents/evaluation/trace_judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "agents/evaluation/same_flow.h"
#include "agents/evaluation/trace_options.h"
#include "scripting/base/bits.h"
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
  Measured operator*(double weight) const { return {mass * weight, regret * weight, error * weight, pages * weight}; }
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

/// Of the pages that a step selected: mass, regret and pages.
Measured measure_pages(const LayerStep& step, const DenseSteps& dense, const LayerTensors& tensors, int at, int kv_head,
                       int page) {
  const std::vector<double> masses = dense.masses(at, kv_head, page);
  const std::span<const int32_t> selected = step.selected_by(kv_head);
  Measured measured;
  for (const int32_t position : selected) measured.mass += masses[static_cast<size_t>(position)];
  measured.pages = static_cast<double>(selected.size()) / pages_for(tensors.tokens_at(at), page);
  measured.regret = std::max(0.0, best_mass(masses, selected.size()) - measured.mass);
  return measured;
}

/// Of the tokens that a step saw, a bit each, in `count` pages, beside the pages that have room for as many.
Measured measure_tokens(std::span<const uint32_t> seen, int count, const DenseSteps& dense, const LayerTensors& tensors, int at,
                        int kv_head, int page) {
  const int tokens = tensors.tokens_at(at);
  const std::vector<double> masses = token_masses(tensors, at, kv_head);
  Measured measured;
  for (int token = 0; token < tokens; ++token) {
    if (has_bit(seen, token)) measured.mass += masses[static_cast<size_t>(token)];
  }
  measured.pages = static_cast<double>(count) / pages_for(tokens, page);
  const std::vector<double> of_pages = dense.masses(at, kv_head, page);
  const double best = best_mass(of_pages, static_cast<size_t>(count));
  measured.regret = std::max(0.0, best - measured.mass);
  return measured;
}

Measured measure_seen(const LayerStep& step, const FlowGraph& graph, const DenseSteps& dense, const LayerTensors& tensors, int at,
                      int kv_head) {
  const int page = graph.geometry.page;
  const Pattern* const pattern = graph.patterns.empty() ? nullptr : &graph.patterns.patterns.front().of_head(kv_head);
  const bool of_tokens = graph.selects_tokens();
  if (pattern == nullptr && graph.beside() == nullptr && !of_tokens)
    return measure_pages(step, dense, tensors, at, kv_head, page);
  const int tokens = tensors.tokens_at(at);
  const std::span<const int32_t> selected = step.selected_by(kv_head);
  const auto words = static_cast<size_t>((tokens + 31) / 32);
  std::vector<uint32_t> visible(words, ~uint32_t{0});
  std::vector<uint32_t> by_any_head = visible;
  if (pattern != nullptr) {
    pattern->row(tokens - 1, tokens, visible);
    graph.patterns.patterns.front().any(tensors.kv_heads).row(tokens - 1, tokens, by_any_head);
  }
  const auto bound = [&](std::vector<uint32_t>& bits, const std::vector<uint32_t>& by) {
    for (size_t w = 0; w < words; ++w) bits[w] &= by[w];
  };
  std::vector<uint32_t> seen(words);
  if (graph.beside() != nullptr) graph.beside()->row(tokens - 1, tokens, seen);
  bound(seen, by_any_head);  // pages beside the selection are those of all heads
  // Pages that were selected are read whatever the step sees of them.
  int count = count_pages(seen, tokens, page) + static_cast<int>(selected.size());
  for (const int32_t place : selected) {
    const int64_t first = int64_t{place} * page;
    const int64_t end = std::min<int64_t>(tokens, first + page);
    count -= has_any_bit(seen, first, end) ? 1 : 0;
    if (!of_tokens) set_bits(seen, first, end);
  }
  for (size_t w = 0; w < words && of_tokens; ++w) seen[w] |= step.tokens_by(kv_head)[w];
  bound(seen, visible);
  return measure_tokens(seen, count, dense, tensors, at, kv_head, page);
}

Measured measure(const LayerStep& step, const Plan& plan, const DenseSteps& dense, const LayerTensors& tensors, int at,
                 int kv_head) {
  Measured measured = measure_seen(step, plan.graph, dense, tensors, at, kv_head);
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
  void add(size_t window, int step, const Measured& measured, double weight) {
    auto& [sum, count] = blocks_[{window, std::min(step / kBlock, of_window_ - 1)}];
    sum += measured * weight;
    count += weight;
  }
  Measured mean() const {
    Measured all;
    double steps = 0;
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
  std::map<std::pair<size_t, int>, std::pair<Measured, double>> blocks_;
};

/// Whether K and V lose by it what the recorded ones have.
bool is_narrow(DataType kv) { return kv == DataType::kE4M3 || kv == DataType::kE5M2; }

/// How many of a model's layers run the flow, by pattern; LayerPatterns::kNone: without one, by its index stage.
std::map<int, int> sparse_layers(const FlowGraph& traced, int layers) {
  std::map<int, int> counts;
  for (int layer = 0; layer < layers; ++layer) {
    if (traced.is_run_by(layer, layers)) ++counts[traced.patterns.place_of(layer, layers)];
  }
  return counts;
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

FlowGraph TraceJudge::trace(const FlowScript& script) const { return script.trace(trace_options(trace_)); }

std::vector<FlowGraph> TraceJudge::programs_of(FlowGraph& traced) const {
  std::vector<FlowGraph> programs = std::exchange(traced.variants, {});
  programs.insert(programs.begin(), traced);
  return programs;
}

std::vector<TraceJudge::WeighedPlan> TraceJudge::weighed_plans(std::vector<FlowGraph> programs) const {
  std::vector<WeighedPlan> plans;
  for (FlowGraph& program : programs) {
    const std::map<int, int> counts = sparse_layers(program, trace_.model_layers);
    if (counts.empty()) program.patterns = {};
    if (program.patterns.empty() && (programs.size() == 1 || !counts.empty())) {
      plans.push_back({compile_for_one_layer(program, device_), programs.size() == 1 ? 1.0 : counts.begin()->second});
    }
    for (const auto& [pattern, count] : program.patterns.empty() ? std::map<int, int>() : counts) {
      FlowGraph of_layers = program;
      if (pattern == LayerPatterns::kNone) of_layers.patterns = {};
      plans.push_back({compile_for_one_layer(of_layers, device_, std::max(pattern, 0)), static_cast<double>(count)});
    }
  }
  return plans;
}

std::vector<Plan> TraceJudge::plans_of(const FlowScript& script) const {
  FlowGraph traced = trace(script);
  std::vector<Plan> plans;
  for (WeighedPlan& weighed : weighed_plans(programs_of(traced))) plans.push_back(std::move(weighed.plan));
  return plans;
}

TraceResult TraceJudge::judge(const FlowScript& script, const FlowGraph* asked) {
  const int layers = trace_.model_layers;
  FlowGraph traced = trace(script);
  if (asked != nullptr) {
    if (const auto difference = difference_between(*asked, traced)) {
      throw InputError(
          fmt::format("for the shape of {} the script gives another flow: {}", trace_.model, *difference),
          "loops over heads, budgets and constants may follow the shape of a model; page size, layers and fields may not");
    }
  }
  std::vector<FlowGraph> programs = programs_of(traced);
  double sparse = 0;
  for (const FlowGraph& program : programs) {
    for (const auto& [pattern, count] : sparse_layers(program, layers)) sparse += static_cast<double>(count) / layers;
  }
  // Types that are not narrower than what was recorded cost dense layers nothing that could be told.
  const double of_dense = sparse < 1 && is_narrow(traced.geometry.kv) ? dense_error(traced) : 0;
  const LayerTensors& first = trace_.windows[0].layers[0].tensors;
  Blocks all(first.steps);
  std::map<std::pair<int, int>, Blocks> by_head;
  // Whichever layers were recorded, each program and each pattern counts as often as layers have it.
  const auto add_all = [&](const Plan& plan, double weight) {
    check_cache_size(plan);
    replay(plan, [&](size_t window, size_t layer, int step, const LayerStep& result) {
      const TracedLayer& recorded = trace_.windows[window].layers[layer];
      for (int head = 0; head < recorded.tensors.kv_heads; ++head) {
        const Measured measured = measure(result, plan, dense_[window][layer], recorded.tensors, step, head);
        if (!std::isfinite(measured.error)) throw InputError("outputs of attention are not finite on the recorded K and V");
        all.add(window, step, measured, weight);
        by_head.try_emplace({recorded.layer, head}, first.steps).first->second.add(window, step, measured, weight);
      }
    });
  };
  for (const WeighedPlan& weighed : weighed_plans(std::move(programs))) add_all(weighed.plan, weighed.weight);
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
