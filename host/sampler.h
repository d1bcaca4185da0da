#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "host/engine.h"

namespace sluice {

/// Checks ranges. Throws InputError naming the option.
void check_sampling(const SamplingOptions& options);

/// Picks tokens from logits. Holds scratch for one vocabulary, so that sampling allocates nothing.
class Sampler {
 public:
  explicit Sampler(int vocabulary);

  /// Greedy: the largest logit, the lowest id of equals. Otherwise the logits are divided by the temperature, cut to the
  /// `top_k` largest, then to the fewest whose share reaches `top_p`, and one is drawn by its share. The draw depends on
  /// (options.seed, step) and the logits alone. NaN counts as -inf; if no logit is finite or +inf, the result is token 0.
  int32_t sample(std::span<const float> logits, const SamplingOptions& options, uint64_t step);

  size_t bytes() const { return candidates_.capacity() * sizeof(Candidate); }

 private:
  struct Candidate {
    float logit;
    int32_t token;
  };
  static bool less(const Candidate& a, const Candidate& b);

  std::vector<Candidate> candidates_;
};

}  // namespace sluice
