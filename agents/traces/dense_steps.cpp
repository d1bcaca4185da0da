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
  const float scale = 1 / std::sqrt(static_cast<float>(dim_));
  const std::span<float> weights = row_of_weights.first(static_cast<size_t>(tokens));
  for (int head = 0; head < query_heads_; ++head) {
    const int kv_head = head / group_;
    const float* key = tensors.keys.data() + ptrdiff_t{kv_head} * dim_;
    const float* value = tensors.values.data() + ptrdiff_t{kv_head} * dim_;
    const ptrdiff_t row = ptrdiff_t{step} * query_heads_ + head;
    const float* query = tensors.queries.data() + row * dim_;
    for (int token = 0; token < tokens; ++token)
      weights[static_cast<size_t>(token)] = scale * dot(query, key + token * stride, dim_);
    const float largest = *std::max_element(weights.begin(), weights.end());
    double sum = 0;
    for (float& weight : weights) {
      weight = std::exp(weight - largest);
      sum += weight;
    }
    double* masses =
        masses_.data() + (static_cast<size_t>(step) * static_cast<size_t>(kv_heads_) + static_cast<size_t>(kv_head)) * parts_;
    float* output = outputs_.data() + row * dim_;
    for (int token = 0; token < tokens; ++token) {
      const double weight = weights[static_cast<size_t>(token)] / sum;
      masses[token / kPart] += weight / group_;
      for (int i = 0; i < dim_; ++i) output[i] += static_cast<float>(weight) * value[token * stride + i];
    }
  }
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
