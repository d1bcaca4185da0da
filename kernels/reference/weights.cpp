#include "kernels/reference/weights.h"

#include <algorithm>
#include <cmath>

namespace sluice::oracle {

namespace {

constexpr double kSplit = 0x1p-15;     // of the magnitude of a product: a query in two parts of 8 bits each
constexpr double kNothing = 0x1p-120;  // what devices may give where the weight is less

/// A logit and by how much it may be off.
Bounded logit_of(std::span<const float> query, const Entry& entry, size_t head, double scale) {
  double product = 0;
  for (size_t d = 0; d < query.size(); ++d) product += scale * query[d] * entry.key[d];
  const double bias = entry.bias.empty() ? 0 : entry.bias[head];
  const double logit = product + bias;
  return {logit, product_error(query, entry.key, scale) + 4 * kUnit * (std::fabs(bias) + std::fabs(logit))};
}

}  // namespace

double product_error(std::span<const float> query, std::span<const float> key, double scale) {
  double magnitude = 0;
  for (size_t d = 0; d < query.size(); ++d) magnitude += std::fabs(scale * query[d] * key[d]);
  return magnitude * (double(query.size()) * kUnit + kSplit);
}

std::vector<Bounded> weights_of(std::span<const float> query, std::span<const Entry> entries,
                                std::span<const std::vector<double>> errors, double scale) {
  if (entries.empty()) return {};
  const size_t dim = entries.front().key.size();
  const size_t heads = query.size() / dim;
  std::vector<Bounded> weights(entries.size() * heads);
  for (size_t head = 0; head < heads; ++head) {
    std::vector<Bounded> logits;
    double largest = -INFINITY;
    for (size_t i = 0; i < entries.size(); ++i) {
      Bounded logit = logit_of(query.subspan(head * dim, dim), entries[i], head, scale);
      if (!errors[i].empty()) logit.error += errors[i][head];
      largest = std::max(largest, logit.value);
      logits.push_back(logit);
    }
    const bool known = std::all_of(logits.begin(), logits.end(),
                                   [](const Bounded& logit) { return std::isfinite(logit.value) && std::isfinite(logit.error); });
    double total = 0;
    double stretched = 0;  // were each logit as much larger as it may be
    for (const Bounded& logit : logits) {
      total += std::exp(logit.value - largest);
      stretched += std::exp(logit.value - largest + logit.error);
    }
    const double of_total = std::log(stretched / total) + double(entries.size()) * kUnit + kUnit * 4 * std::fabs(largest);
    for (size_t i = 0; i < entries.size(); ++i) {
      const double weight = std::exp(logits[i].value - largest) / total;
      const double error = weight * std::expm1(logits[i].error + of_total + 32 * kUnit) + kNothing;
      weights[i * heads + head] = {weight, known && std::isfinite(error) ? error : kUnknown};
    }
  }
  return weights;
}

}  // namespace sluice::oracle
