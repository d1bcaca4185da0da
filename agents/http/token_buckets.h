#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <unordered_map>

namespace sluice {

/// Token buckets, one for each caller: a call takes a token, and they come back with time. For one thread at a time.
class TokenBuckets {
 public:
  using Clock = std::chrono::steady_clock;

  struct Rate {
    double per_second = 0;  // 0: no limit
    double most = 0;        // tokens that a bucket holds
  };

  explicit TokenBuckets(Rate rate, Clock::time_point now) : rate_(rate), swept_(now) {}

  /// How long the caller has to wait for a token, at least a second; nothing: there is one.
  std::optional<std::chrono::seconds> wait(const std::string& caller, Clock::time_point now) const;
  /// The same, and takes one if there is one.
  std::optional<std::chrono::seconds> take(const std::string& caller, Clock::time_point now);
  /// Forgets buckets that are full again, at most once a second.
  void sweep(Clock::time_point now);
  size_t size() const { return buckets_.size(); }

 private:
  struct Bucket {
    double tokens = 0;
    Clock::time_point at;  // when it had so many
  };

  double tokens(const Bucket& bucket, Clock::time_point now) const;

  Rate rate_;
  std::unordered_map<std::string, Bucket> buckets_;
  Clock::time_point swept_;
};

}  // namespace sluice
