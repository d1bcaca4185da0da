#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/device/cache_operations.h"

namespace sluice {

/// How keys are turned that go from one place of a text to another (SparseX, section 3.1): for each token of each run by the
/// difference of the two angles that its channels have there, as models round them. So a key that is turned is what it would have
/// been at its new place, but for the rounding of its type.
class KeyTurns {
 public:
  /// Throws InternalError where `rope` has another number of frequencies than `head_dim` wants.
  KeyTurns(const CacheOperations::Rope& rope, int head_dim, std::span<const ShiftedRun> runs);

  /// [head_dim / 2], of token `token` of a run.
  const float* cosine(size_t run, int token) const { return cosine_.data() + place(run, token); }
  const float* sine(size_t run, int token) const { return sine_.data() + place(run, token); }
  /// Turns a key [head_dim] in place.
  void turn(size_t run, int token, float* key) const;

 private:
  size_t place(size_t run, int token) const { return (first_[run] + static_cast<size_t>(token)) * half_; }

  size_t half_;
  std::vector<size_t> first_;  // by run: tokens before it
  std::vector<float> cosine_;  // [tokens, half]
  std::vector<float> sine_;
};

}  // namespace sluice
