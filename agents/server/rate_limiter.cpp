#include "agents/server/rate_limiter.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace sluice {
namespace {

constexpr double kSecondsOfWrites = 60;  // that may be saved up
constexpr double kSecondsOfReads = 10;
constexpr std::chrono::seconds kSweepPeriod{1};

bool is_write(const HttpRequest& request, const HttpRoute& route) {
  const bool may_write = route.access == Access::kWrite || route.access == Access::kAdmin;
  return may_write && request.method != "GET" && request.method != "HEAD";
}

/// The network of an IPv6 address, which is what one host has; other addresses as they are.
std::string network_of(const std::string& address) {
  constexpr size_t kNetworkBytes = 8;
  std::array<char, sizeof(in6_addr)> bytes{};
  if (::inet_pton(AF_INET6, address.c_str(), bytes.data()) != 1) return address;
  constexpr std::string_view kMapped("\0\0\0\0\0\0\0\0\0\0\xff\xff", 12);  // before an address of IPv4
  if (std::string_view(bytes.data(), bytes.size()).starts_with(kMapped)) return {bytes.data(), bytes.size()};
  return {bytes.data(), kNetworkBytes};
}

std::string caller_of(const HttpRequest& request) {
  return request.identity ? "agent " + request.identity->name : "address " + network_of(request.remote_address);
}

}  // namespace

RateLimiter::RateLimiter(RateLimits limits, std::function<Clock::time_point()> now) : now_(std::move(now)), swept_(now_()) {
  constexpr double kMinute = 60;
  const double writes_per_second = limits.writes_per_minute / kMinute;
  writes_.rate = {writes_per_second, std::max(1.0, writes_per_second * kSecondsOfWrites)};
  const double reads_per_second = limits.reads_per_second;
  reads_.rate = {reads_per_second, std::max(1.0, reads_per_second * kSecondsOfReads)};
}

double RateLimiter::Buckets::tokens(const Bucket& bucket, Clock::time_point now) const {
  const double seconds = std::chrono::duration<double>(now - bucket.at).count();
  return std::min(rate.most, bucket.tokens + std::max(0.0, seconds) * rate.per_second);
}

std::optional<std::chrono::seconds> RateLimiter::Buckets::take(const std::string& caller, Clock::time_point now) {
  Bucket& bucket = of.try_emplace(caller, Bucket{rate.most, now}).first->second;
  bucket = {tokens(bucket, now), now};
  if (bucket.tokens < 1) return std::chrono::seconds(static_cast<int64_t>(std::ceil((1 - bucket.tokens) / rate.per_second)));
  bucket.tokens -= 1;
  return {};
}

void RateLimiter::Buckets::forget_full(Clock::time_point now) {
  std::erase_if(of, [&](const auto& entry) { return tokens(entry.second, now) >= rate.most; });
}

std::optional<std::chrono::seconds> RateLimiter::wait(const HttpRequest& request, const HttpRoute& route) {
  if (route.access == Access::kPublic) return {};
  return take(request, is_write(request, route));
}

std::optional<std::chrono::seconds> RateLimiter::take(const HttpRequest& request, bool writes) {
  const std::lock_guard lock(mutex_);
  Buckets& buckets = writes ? writes_ : reads_;
  if (buckets.rate.per_second <= 0) return {};
  const Clock::time_point now = now_();
  forget_full(now);
  return buckets.take(caller_of(request), now);
}

void RateLimiter::forget_full(Clock::time_point now) {
  if (now - swept_ < kSweepPeriod) return;
  swept_ = now;
  writes_.forget_full(now);
  reads_.forget_full(now);
}

size_t RateLimiter::buckets() const {
  const std::lock_guard lock(mutex_);
  return writes_.of.size() + reads_.of.size();
}

}  // namespace sluice
