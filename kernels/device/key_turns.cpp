#include "kernels/device/key_turns.h"

#include <fmt/format.h>

#include <cmath>

#include "scripting/base/error.h"

namespace sluice {

KeyTurns::KeyTurns(const CacheOperations::Rope& rope, int head_dim, std::span<const ShiftedRun> runs)
    : half_(static_cast<size_t>(head_dim / 2)) {
  std::vector<float> frequencies = rope.inverse_frequencies;
  if (!frequencies.empty() && frequencies.size() != half_) {
    throw InternalError(fmt::format("rope has {} frequencies for a head dimension of {}", frequencies.size(), head_dim));
  }
  for (size_t i = frequencies.size(); i < half_; ++i) {
    frequencies.push_back(1.0F / std::pow(rope.theta, static_cast<float>(2 * i) / static_cast<float>(head_dim)));
  }
  size_t tokens = 0;
  for (const ShiftedRun& run : runs) {
    first_.push_back(tokens);
    tokens += static_cast<size_t>(run.tokens);
  }
  cosine_.reserve(tokens * half_);
  sine_.reserve(tokens * half_);
  for (const ShiftedRun& run : runs) {
    for (int token = 0; token < run.tokens; ++token) {
      const auto from = static_cast<float>(run.from_position + token);
      const auto to = static_cast<float>(run.to_position + token);
      for (const float frequency : frequencies) {
        // Angles are float32, as models have them; at far positions their rounding is more than that of a key.
        const double angle = static_cast<double>(to * frequency) - static_cast<double>(from * frequency);
        cosine_.push_back(static_cast<float>(std::cos(angle)));
        sine_.push_back(static_cast<float>(std::sin(angle)));
      }
    }
  }
}

void KeyTurns::turn(size_t run, int token, float* key) const {
  const float* const cosine = this->cosine(run, token);
  const float* const sine = this->sine(run, token);
  for (size_t i = 0; i < half_; ++i) {
    const float a = key[i];
    const float b = key[i + half_];
    key[i] = a * cosine[i] - b * sine[i];
    key[i + half_] = b * cosine[i] + a * sine[i];
  }
}

}  // namespace sluice
