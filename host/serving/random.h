#pragma once

#include <cstdint>

#include "kernels/device/random.h"

namespace sluice {

/// Joins two words into one; the order matters.
constexpr uint64_t mix(uint64_t a, uint64_t b) { return mix64(mix64(a + 0x9e3779b97f4a7c15U) ^ b); }

/// A number in [0, 1) that depends on nothing but (seed, counter), so that draws repeat whatever runs beside them.
constexpr double counter_uniform(uint64_t seed, uint64_t counter) {
  return static_cast<double>(mix(seed, counter) >> 11) * 0x1p-53;
}

}  // namespace sluice
