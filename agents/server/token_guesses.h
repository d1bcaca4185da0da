#pragma once

#include <chrono>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>

#include "agents/server/token_buckets.h"

namespace sluice {

/// Bounds how often tokens that are nobody's are looked up: so many a second from one network (`network_of`). A token that was
/// somebody's when it last came is not held up by what others there try. Any number of threads may use it.
class TokenGuesses {
 public:
  using Clock = TokenBuckets::Clock;

  explicit TokenGuesses(std::function<Clock::time_point()> now = Clock::now);

  /// How long this token is not to be looked up; nothing: it may be.
  std::optional<std::chrono::seconds> wait(const std::string& token, const std::string& address);
  /// What the look at it gave.
  void learn(const std::string& token, const std::string& address, bool is_known);

 private:
  const std::function<Clock::time_point()> now_;
  std::mutex mutex_;
  TokenBuckets guesses_;
  // Hashes, which are to save a look and nothing else. Tokens that were agents' when they last came: few.
  std::unordered_set<size_t> known_;
};

}  // namespace sluice
