#include "agents/http/token_buckets.h"

#include <algorithm>
#include <cmath>

namespace sluice {

double TokenBuckets::tokens(const Bucket& bucket, Clock::time_point now) const {
  const double seconds = std::chrono::duration<double>(now - bucket.at).count();
  return std::min(rate_.most, bucket.tokens + std::max(0.0, seconds) * rate_.per_second);
}

std::optional<std::chrono::seconds> TokenBuckets::wait(const std::string& caller, Clock::time_point now) const {
  const auto found = buckets_.find(caller);
  if (rate_.per_second <= 0 || found == buckets_.end()) return {};
  const double missing = 1 - tokens(found->second, now);
  if (missing <= 0) return {};
  return std::chrono::seconds(static_cast<int64_t>(std::ceil(missing / rate_.per_second)));
}

std::optional<std::chrono::seconds> TokenBuckets::take(const std::string& caller, Clock::time_point now) {
  if (rate_.per_second <= 0) return {};
  if (const auto seconds = wait(caller, now)) return seconds;
  Bucket& bucket = buckets_.try_emplace(caller, Bucket{rate_.most, now}).first->second;
  bucket = {tokens(bucket, now) - 1, now};
  return {};
}

void TokenBuckets::sweep(Clock::time_point now) {
  constexpr std::chrono::seconds kPeriod{1};
  if (now - swept_ < kPeriod) return;
  swept_ = now;
  std::erase_if(buckets_, [&](const auto& entry) { return tokens(entry.second, now) >= rate_.most; });
}

}  // namespace sluice
