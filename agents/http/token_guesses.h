#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "agents/http/token_buckets.h"

namespace sluice {

/// Counts tokens that are nobody's: so many a second from one network (`network_of`) are mistakes, more are guesses. Tokens that
/// are somebody's are no matter of this. Any number of threads may use it.
class TokenGuesses {
 public:
  using Clock = TokenBuckets::Clock;

  explicit TokenGuesses(std::function<Clock::time_point()> now = Clock::now);

  /// One more token that is nobody's. Nothing: it may be a mistake; otherwise how long to wait before the next, at least a
  /// second.
  std::optional<std::chrono::seconds> count(const std::string& address);

 private:
  const std::function<Clock::time_point()> now_;
  std::mutex mutex_;
  TokenBuckets guesses_;
};

}  // namespace sluice
