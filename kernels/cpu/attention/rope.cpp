#include "kernels/cpu/attention/rope.h"

#include <fmt/format.h>

#include <cmath>

namespace sluice::cpu {

void RopeTable::reserve(int rows, int head_dim) {
  const size_t half = head_dim / 2;
  given_.reserve(half);
  frequencies_.reserve(half);
  cosine_.reserve(rows * half);
  sine_.reserve(rows * half);
}

void RopeTable::prepare(const Device::Rope& rope, int head_dim, std::span<const int32_t> positions, int64_t pass) {
  const int half = head_dim / 2;
  if (pass == pass_ && half == half_ && rope.attention_scale == attention_scale_ && rope.theta == theta_ &&
      rope.inverse_frequencies == given_) {
    return;
  }
  if (!rope.inverse_frequencies.empty() && static_cast<int>(rope.inverse_frequencies.size()) != half) {
    throw InternalError(
        fmt::format("rope has {} frequencies for a head dimension of {}", rope.inverse_frequencies.size(), head_dim));
  }
  pass_ = pass;
  half_ = half;
  attention_scale_ = rope.attention_scale;
  theta_ = rope.theta;
  given_.assign(rope.inverse_frequencies.begin(), rope.inverse_frequencies.end());
  frequencies_.assign(given_.begin(), given_.end());
  for (int i = static_cast<int>(frequencies_.size()); i < half; ++i) {
    frequencies_.push_back(1.0f / std::pow(rope.theta, static_cast<float>(2 * i) / static_cast<float>(head_dim)));
  }
  cosine_.resize(positions.size() * half);
  sine_.resize(positions.size() * half);
  for (size_t row = 0; row < positions.size(); ++row) {
    for (int i = 0; i < half; ++i) {
      // The angle is rounded to float32, as the models' reference implementations do.
      const float angle = static_cast<float>(positions[row]) * frequencies_[i];
      cosine_[row * half + i] = std::cos(angle) * attention_scale_;
      sine_[row * half + i] = std::sin(angle) * attention_scale_;
    }
  }
}

}  // namespace sluice::cpu
