#include "agents/http/rate_limiter.h"

#include <algorithm>
#include <utility>

#include "agents/http/caller.h"

namespace sluice {
namespace {

constexpr double kSecondsOfWrites = 60;  // that may be saved up
constexpr double kSecondsOfReads = 10;

bool is_write(const HttpRequest& request, const HttpRoute& route) {
  const bool may_write = route.access == Access::kWrite || route.access == Access::kAdmin;
  return may_write && !route.counts_as_read && request.method != "GET" && request.method != "HEAD";
}

TokenBuckets::Rate rate_of(double per_second, double seconds) { return {per_second, std::max(1.0, per_second * seconds)}; }

}  // namespace

RateLimiter::RateLimiter(RateLimits limits, std::function<Clock::time_point()> now)
    : now_(std::move(now)),
      writes_(rate_of(limits.writes_per_minute / 60.0, kSecondsOfWrites), now_()),
      reads_(rate_of(limits.reads_per_second, kSecondsOfReads), now_()) {}

std::optional<std::chrono::seconds> RateLimiter::wait(const HttpRequest& request, const HttpRoute& route) {
  if (route.access == Access::kPublic) return {};
  return take(request, is_write(request, route));
}

std::optional<std::chrono::seconds> RateLimiter::take(const HttpRequest& request, bool writes) {
  const std::lock_guard lock(mutex_);
  const Clock::time_point now = now_();
  writes_.sweep(now);
  reads_.sweep(now);
  return (writes ? writes_ : reads_).take(caller_of(request), now);
}

size_t RateLimiter::buckets() const {
  const std::lock_guard lock(mutex_);
  return writes_.size() + reads_.size();
}

}  // namespace sluice
