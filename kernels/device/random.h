#pragma once

#include <cstdint>

namespace sluice {

// Counter-based random numbers: a value is a function of its key and index alone, so that every device, in any order and
// with any number of threads, draws the same ones.
//
//   key   = mix64(mix64(mix64(mix64(seed) + purpose) + (layer << 32 | kv_head)) + step)
//   value = mix64(key + (index + 1) * 0x9e3779b97f4a7c15) >> 32
//
// where mix64 is the finaliser of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number generators",
// OOPSLA 2014) and arithmetic is modulo 2^64. `index` is the position of a page in the request.

/// What numbers are drawn for; keeps the draws of different operators apart.
enum class RandomPurpose : uint32_t { kRandom = 1, kApproxTopK = 2 };

constexpr uint64_t mix64(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

/// `step` counts the tokens in the cache.
constexpr uint64_t random_key(uint64_t seed, RandomPurpose purpose, int layer, int kv_head, int64_t step) {
  const uint64_t place = static_cast<uint64_t>(static_cast<uint32_t>(layer)) << 32 | static_cast<uint32_t>(kv_head);
  return mix64(mix64(mix64(mix64(seed) + static_cast<uint64_t>(purpose)) + place) + static_cast<uint64_t>(step));
}

constexpr uint32_t random_bits(uint64_t key, uint64_t index) {
  return static_cast<uint32_t>(mix64(key + (index + 1) * 0x9e3779b97f4a7c15ULL) >> 32);
}

/// Uniform in [0, 1): a multiple of 2^-24.
constexpr float random_uniform(uint64_t key, uint64_t index) {
  return static_cast<float>(random_bits(key, index) >> 8) * 0x1p-24F;
}

}  // namespace sluice
