#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <vector>

namespace sluice::test {

/// Drawn from the normal distribution.
inline std::vector<float> random_floats(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

}  // namespace sluice::test
