#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace sluice {

/// 256 bits from which every sample of an evaluation follows. Secret until the run is over, so that nobody can prepare
/// answers for it.
struct Seed {
  std::array<uint8_t, 32> bytes{};

  /// From the system's source of randomness.
  static Seed secret();
  /// 64 hexadecimal digits are the seed itself (as reports print it); any other text is hashed to one.
  static Seed parse(std::string_view text);
  std::string hex() const;
  /// Another one for each name, always the same, which tells nothing of this one nor can be told without it.
  Seed derived(std::string_view name) const;
  bool operator==(const Seed&) const = default;
};

/// A stream of random numbers: ChaCha20 under a key derived from (seed, stream name) by BLAKE2b. Streams of different
/// names are independent, and no output tells anything about the seed.
class Rng {
 public:
  Rng(const Seed& seed, std::string_view stream);

  uint64_t next();
  /// Uniform in [0, bound), without bias; `bound` >= 1.
  uint64_t below(uint64_t bound);
  /// Uniform in [low, high], both included.
  int between(int low, int high);
  /// Uniform in [0, 1), 53 bits.
  double uniform();

  template <typename T>
  void shuffle(std::vector<T>& values) {
    for (size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[below(i)]);
  }
  template <typename T>
  const T& pick(const std::vector<T>& values) {
    return values[below(values.size())];
  }
  /// `count` different elements in random order; `count` <= values.size().
  template <typename T>
  std::vector<T> distinct(std::vector<T> values, size_t count) {
    for (size_t i = 0; i < count; ++i) std::swap(values[i], values[i + below(values.size() - i)]);
    values.resize(count);
    return values;
  }

 private:
  void refill();

  std::array<uint8_t, 32> key_{};
  uint64_t block_ = 0;  // the nonce of the next refill
  std::array<uint64_t, 64> buffer_{};
  size_t used_ = 64;
};

}  // namespace sluice
