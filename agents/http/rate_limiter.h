#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "agents/http/http_message.h"
#include "agents/http/router.h"
#include "agents/http/token_buckets.h"

namespace sluice {

/// Requests of one caller; 0: as many as it likes.
struct RateLimits {
  int writes_per_minute = 600;
  int reads_per_second = 200;
};

/// Token buckets: one for the writes and one for the reads of each caller, who is whoever the token belongs to, or, without one,
/// a remote address (`network_of`). A write is what needs a token and changes something, but for routes that count as reads. A
/// caller may save up a minute of writes and ten seconds of reads. Public routes are free. Any number of threads may use it.
class RateLimiter {
 public:
  using Clock = TokenBuckets::Clock;

  explicit RateLimiter(RateLimits limits, std::function<Clock::time_point()> now = Clock::now);

  /// Takes a token for this request. Nothing: it may go on; otherwise how long to wait for the next, at least a second.
  std::optional<std::chrono::seconds> wait(const HttpRequest& request, const HttpRoute& route);
  /// The same for a part of a request: one of several calls that it bears.
  std::optional<std::chrono::seconds> take(const HttpRequest& request, bool writes);

  /// How many buckets are kept. Those that are full again are forgotten, so there are no more than callers of the last minute.
  size_t buckets() const;

 private:
  const std::function<Clock::time_point()> now_;
  mutable std::mutex mutex_;
  TokenBuckets writes_;
  TokenBuckets reads_;
};

}  // namespace sluice
