#include "kernels/cpu/sampling/sample.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace sluice::cpu {
namespace {

constexpr float kLowest = -std::numeric_limits<float>::infinity();

int32_t argmax(std::span<const float> logits) {
  int32_t best = 0;
  float best_logit = kLowest;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > best_logit) {  // false for NaN
      best_logit = logits[i];
      best = static_cast<int32_t>(i);
    }
  }
  return best;
}

}  // namespace

bool is_sound(std::span<const float> logits) {
  bool damaged = false;
  bool possible = false;
  for (const float logit : logits) {  // as vectors
    damaged |= !(logit < std::numeric_limits<float>::infinity());
    possible |= logit > kLowest;
  }
  return possible && !damaged;
}

void find_probabilities(std::span<const float> logits, const SampleRow& choice, int32_t token, RowProbabilities& out) {
  const float best = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - best);
  const double log_sum = best + std::log(sum);
  const auto log_probability = [&](int32_t id) { return static_cast<float>(logits[static_cast<size_t>(id)] - log_sum); };
  out.of_token = log_probability(token);
  const size_t wanted = std::min(static_cast<size_t>(choice.likely), logits.size());
  std::array<int32_t, kMostLikely> likely{};
  size_t found = 0;
  for (size_t i = 0; i < logits.size() && wanted > 0; ++i) {
    if (found == wanted && logits[i] <= logits[static_cast<size_t>(likely[found - 1])]) continue;
    size_t place = found < wanted ? found++ : found - 1;
    for (; place > 0 && logits[static_cast<size_t>(likely[place - 1])] < logits[i]; --place) likely[place] = likely[place - 1];
    likely[place] = static_cast<int32_t>(i);
  }
  for (size_t i = 0; i < found; ++i) out.likely[i] = {likely[i], log_probability(likely[i])};
}

bool Sampler::less(const Candidate& a, const Candidate& b) { return a.logit != b.logit ? a.logit < b.logit : a.token > b.token; }

int32_t Sampler::sample(std::span<const float> logits, const SampleRow& choice) {
  if (choice.given >= 0) return choice.given;
  const int32_t best = argmax(logits);
  const float best_logit = logits[static_cast<size_t>(best)];
  if (choice.temperature <= 0 || !std::isfinite(best_logit)) return best;

  candidates_.clear();
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > kLowest) candidates_.push_back({logits[i], static_cast<int32_t>(i)});
  }
  if (choice.top_k > 0 && static_cast<size_t>(choice.top_k) < candidates_.size()) {
    const auto cut = candidates_.begin() + choice.top_k;
    std::nth_element(candidates_.begin(), cut, candidates_.end(),
                     [](const Candidate& a, const Candidate& b) { return less(b, a); });
    candidates_.erase(cut, candidates_.end());
  }

  const auto weight = [&](const Candidate& candidate) {
    return std::exp((static_cast<double>(candidate.logit) - best_logit) / choice.temperature);
  };
  double total = 0;
  for (const Candidate& candidate : candidates_) total += weight(candidate);
  // Candidates leave the heap from the most likely to the least; only as many as the cut and the draw need.
  std::make_heap(candidates_.begin(), candidates_.end(), less);
  const auto pop = [&](size_t rank) -> const Candidate& {
    const auto end = candidates_.end() - static_cast<ptrdiff_t>(rank);
    std::pop_heap(candidates_.begin(), end, less);
    return *(end - 1);
  };
  size_t popped = 0;  // they stand at the end of the array, the most likely last
  double kept_total = total;
  size_t kept = candidates_.size();
  if (choice.top_p < 1) {
    kept_total = 0;
    while (popped < candidates_.size() && (popped == 0 || kept_total < choice.top_p * total)) kept_total += weight(pop(popped++));
    kept = popped;
  }

  const double target = choice.uniform * kept_total;
  double sum = 0;
  for (size_t rank = 0; rank < kept; ++rank) {
    const Candidate& candidate = rank < popped ? candidates_[candidates_.size() - 1 - rank] : pop(popped++);
    sum += weight(candidate);
    if (target < sum) return candidate.token;
  }
  return candidates_[candidates_.size() - kept].token;  // rounding left the target at the very end
}

}  // namespace sluice::cpu
