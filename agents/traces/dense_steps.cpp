#include "agents/traces/dense_steps.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <functional>
#include <numeric>
#include <thread>

#include "scripting/base/error.h"

namespace sluice {
namespace {

constexpr int kPart = 8;  // tokens of the smallest page

/// Sums in lanes, which compilers make vectors of.
float dot(const float* a, const float* b, int count) {
  constexpr int kLanes = 16;
  std::array<float, kLanes> sums{};
  int at = 0;
  for (; at + kLanes <= count; at += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) sums[lane] += a[at + lane] * b[at + lane];
  }
  float sum = std::accumulate(sums.begin(), sums.end(), 0.0F);
  for (; at < count; ++at) sum += a[at] * b[at];
  return sum;
}

/// exp(scaled q . k - the largest) of the tokens that a step sees, for a query head; their sum.
double weigh(const LayerTensors& tensors, int step, int head, std::span<float> weights) {
  const ptrdiff_t stride = ptrdiff_t{tensors.kv_heads} * tensors.dim;
  const float scale = 1 / std::sqrt(static_cast<float>(tensors.dim));
  const float* key = tensors.keys.data() + ptrdiff_t{head / tensors.group()} * tensors.dim;
  const float* query = tensors.queries.data() + (ptrdiff_t{step} * tensors.query_heads + head) * tensors.dim;
  for (size_t token = 0; token < weights.size(); ++token) {
    weights[token] = scale * dot(query, key + static_cast<ptrdiff_t>(token) * stride, tensors.dim);
  }
  const float largest = *std::max_element(weights.begin(), weights.end());
  double sum = 0;
  for (float& weight : weights) {
    weight = std::exp(weight - largest);
    sum += weight;
  }
  return sum;
}

}  // namespace

DenseSteps::DenseSteps(const LayerTensors& tensors, int threads)
    : group_(tensors.group()),
      dim_(tensors.dim),
      query_heads_(tensors.query_heads),
      kv_heads_(tensors.kv_heads),
      parts_(static_cast<size_t>((tensors.tokens + kPart - 1) / kPart)),
      masses_(static_cast<size_t>(tensors.steps) * static_cast<size_t>(tensors.kv_heads) * parts_),
      outputs_(tensors.queries.size()) {
  const size_t most = threads > 0 ? static_cast<size_t>(threads) : std::max(1U, std::thread::hardware_concurrency());
  std::vector<std::vector<float>> weights(std::min(most, static_cast<size_t>(tensors.steps)));
  for (std::vector<float>& row : weights) row.resize(static_cast<size_t>(tensors.tokens));
  std::atomic<int> next = 0;
  const auto work = [&](std::vector<float>& row) {
    for (int step = next++; step < tensors.steps; step = next++) attend(tensors, step, row);
  };
  {
    std::vector<std::jthread> threads;
    for (size_t i = 1; i < weights.size(); ++i) threads.emplace_back(work, std::ref(weights[i]));
    work(weights[0]);
  }
  const auto is_finite = [](double number) { return std::isfinite(number); };
  if (std::all_of(masses_.begin(), masses_.end(), is_finite) && std::all_of(outputs_.begin(), outputs_.end(), is_finite)) return;
  throw InputError("attention over the keys, values and queries is not finite", "they hold NaN, infinities or huge numbers");
}

void DenseSteps::attend(const LayerTensors& tensors, int step, std::span<float> row_of_weights) {
  const int tokens = tensors.tokens_at(step);
  const ptrdiff_t stride = ptrdiff_t{kv_heads_} * dim_;
  const std::span<float> weights = row_of_weights.first(static_cast<size_t>(tokens));
  for (int head = 0; head < query_heads_; ++head) {
    const int kv_head = head / group_;
    const float* value = tensors.values.data() + ptrdiff_t{kv_head} * dim_;
    const double sum = weigh(tensors, step, head, weights);
    double* masses =
        masses_.data() + (static_cast<size_t>(step) * static_cast<size_t>(kv_heads_) + static_cast<size_t>(kv_head)) * parts_;
    float* output = outputs_.data() + (ptrdiff_t{step} * query_heads_ + head) * dim_;
    for (int token = 0; token < tokens; ++token) {
      const double weight = weights[static_cast<size_t>(token)] / sum;
      masses[token / kPart] += weight / group_;
      for (int i = 0; i < dim_; ++i) output[i] += static_cast<float>(weight) * value[token * stride + i];
    }
  }
}

std::vector<double> token_masses(const LayerTensors& tensors, int step, int kv_head) {
  std::vector<float> weights(static_cast<size_t>(tensors.tokens_at(step)));
  std::vector<double> masses(weights.size());
  for (int head = kv_head * tensors.group(); head < (kv_head + 1) * tensors.group(); ++head) {
    const double sum = weigh(tensors, step, head, weights);
    for (size_t token = 0; token < masses.size(); ++token) masses[token] += weights[token] / sum / tensors.group();
  }
  return masses;
}

std::vector<double> DenseSteps::masses(int step, int kv_head, int page) const {
  const auto parts = static_cast<size_t>(page / kPart);
  const double* first =
      masses_.data() + (static_cast<size_t>(step) * static_cast<size_t>(kv_heads_) + static_cast<size_t>(kv_head)) * parts_;
  std::vector<double> masses((parts_ + parts - 1) / parts);
  for (size_t part = 0; part < parts_; ++part) masses[part / parts] += first[part];
  return masses;
}

std::span<const float> DenseSteps::output(int step, int query_head) const {
  const size_t row = static_cast<size_t>(step) * static_cast<size_t>(query_heads_) + static_cast<size_t>(query_head);
  return std::span(outputs_).subspan(row * static_cast<size_t>(dim_), static_cast<size_t>(dim_));
}

double best_mass(std::vector<double> masses, size_t count) {
  if (count >= masses.size()) return std::accumulate(masses.begin(), masses.end(), 0.0);
  const auto end = masses.begin() + static_cast<ptrdiff_t>(count);
  std::nth_element(masses.begin(), end, masses.end(), std::greater<>());
  return std::accumulate(masses.begin(), end, 0.0);
}

}  // namespace sluice
