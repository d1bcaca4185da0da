#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

namespace sluice {

/// Bounds the bytes of large bodies that the server holds: of requests that arrive, and of answers whose clients are slow. Small
/// ones do not count; the number of connections bounds them. Any number of threads may use it.
class BytesInHand {
 public:
  /// Bodies of at most so many bytes do not count.
  static constexpr size_t kSmall = size_t{64} << 10;

  explicit BytesInHand(size_t most) : most_(most) {}

  /// Room for `bytes` as long as the result lives, which must not outlive this. Null if there is none: one caller has at most
  /// half of what others leave, or a single body, whatever its size, while nothing else is in hand.
  std::shared_ptr<void> take(const std::string& caller, size_t bytes);

 private:
  void give_back(const std::string& caller, size_t bytes);

  const size_t most_;
  std::mutex mutex_;
  std::unordered_map<std::string, size_t> taken_;  // by caller
  size_t all_ = 0;
  size_t largest_ = 0;  // that `all_` was since it was 0
};

}  // namespace sluice
