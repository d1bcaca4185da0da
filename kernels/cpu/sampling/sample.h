#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/device.h"

namespace sluice::cpu {

/// Whether every logit is finite or -inf, and at least one is finite.
bool is_sound(std::span<const float> logits);

/// The log-probabilities that `choice` asks for; `token` is what it picked. `logits` are sound (is_sound).
void find_probabilities(std::span<const float> logits, const SampleRow& choice, int32_t token, RowProbabilities& out);

/// Picks a token from a row of logits, as Device::sample says; `choice.row` is not looked at. Holds scratch for one vocabulary,
/// so that sampling allocates nothing.
class Sampler {
 public:
  void reserve(int vocabulary) { candidates_.reserve(static_cast<size_t>(vocabulary)); }
  int32_t sample(std::span<const float> logits, const SampleRow& choice);

 private:
  struct Candidate {
    float logit;
    int32_t token;
  };
  static bool less(const Candidate& a, const Candidate& b);

  std::vector<Candidate> candidates_;
};

}  // namespace sluice::cpu
