#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <span>
#include <vector>

#include "kernels/device/picks.h"

namespace sluice::testing {

/// Natural logarithms of the softmax of `logits`, in float64.
template <typename T>
std::vector<double> log_softmax(std::span<const T> logits) {
  const double best = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const T logit : logits) sum += std::exp(logit - best);
  std::vector<double> result;
  for (const T logit : logits) result.push_back(logit - best - std::log(sum));
  return result;
}

/// The tokens of the `count` largest logits: the largest first, the lower id of equals.
inline std::vector<int32_t> likely_tokens(std::span<const float> logits, size_t count) {
  std::vector<int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(),
                   [&](int32_t a, int32_t b) { return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)]; });
  ids.resize(std::min(count, ids.size()));
  return ids;
}

}  // namespace sluice::testing
