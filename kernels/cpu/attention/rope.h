#pragma once

#include <span>
#include <vector>

#include "kernels/device.h"

namespace sluice::cpu {

/// Cosines and sines of a pass's positions, made once and used by every layer.
class RopeTable {
 public:
  void reserve(int rows, int head_dim);
  /// Fills the table for `positions`, unless it already stands for this pass and these frequencies.
  void prepare(const Device::Rope& rope, int head_dim, std::span<const int32_t> positions, int64_t pass);
  const float* cosine(int64_t row) const { return cosine_.data() + row * half_; }
  const float* sine(int64_t row) const { return sine_.data() + row * half_; }

 private:
  int64_t pass_ = -1;
  int half_ = 0;
  float attention_scale_ = 1;
  float theta_ = 0;
  std::vector<float> given_;        // frequencies as the model gave them, perhaps none
  std::vector<float> frequencies_;  // [half]
  std::vector<float> cosine_;       // [rows, half]
  std::vector<float> sine_;
};

}  // namespace sluice::cpu
