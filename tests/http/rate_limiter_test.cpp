#include "agents/http/rate_limiter.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace sluice::test {
namespace {

using namespace std::chrono_literals;

class RateLimits : public ::testing::Test {
 protected:
  RateLimits() {
    read_.access = Access::kRead;
    write_.access = Access::kWrite;
    public_.access = Access::kPublic;
  }

  static HttpRequest from(const std::string& agent, const std::string& address = "10.0.0.1", const std::string& method = "POST") {
    HttpRequest request;
    request.method = method;
    request.remote_address = address;
    if (!agent.empty()) request.identity = Identity{agent, Role::kAgent};
    return request;
  }

  /// How many of `count` requests go through at once.
  int passed(int count, const HttpRequest& request, const HttpRoute& route) {
    int through = 0;
    for (int i = 0; i < count; ++i) through += limiter_.wait(request, route) ? 0 : 1;
    return through;
  }

  HttpRoute read_;
  HttpRoute write_;
  HttpRoute public_;
  RateLimiter::Clock::time_point now_;
  RateLimiter limiter_{{.writes_per_minute = 30, .reads_per_second = 2}, [this] { return now_; }};
};

TEST_F(RateLimits, AMinuteOfWritesMayComeAtOnceAndThenTheyDrip) {
  EXPECT_EQ(passed(40, from("ada"), write_), 30);
  EXPECT_EQ(limiter_.wait(from("ada"), write_), 2s);
  now_ += 1s;
  EXPECT_EQ(limiter_.wait(from("ada"), write_), 1s) << "never zero, or a caller would try in vain";
  now_ += 1s;
  EXPECT_EQ(passed(5, from("ada"), write_), 1);
  now_ += 10s;
  EXPECT_EQ(passed(10, from("ada"), write_), 5);
  now_ += 1h;
  EXPECT_EQ(passed(100, from("ada"), write_), 30) << "no more than a minute is saved up";
}

TEST_F(RateLimits, ReadsAndWritesCountByThemselves) {
  EXPECT_EQ(passed(100, from("ada"), write_), 30);
  EXPECT_EQ(passed(100, from("ada", "10.0.0.1", "GET"), write_), 20) << "GET /v1/me is a read, whoever may ask";
  EXPECT_EQ(passed(100, from("ada"), read_), 0) << "which were those";
  EXPECT_EQ(passed(100, from("ada"), public_), 100);
}

TEST_F(RateLimits, ARouteMayCountAsARead) {
  HttpRoute generating = write_;
  generating.counts_as_read = true;
  EXPECT_EQ(passed(100, from("ada"), generating), 20);
  EXPECT_EQ(passed(100, from("ada"), write_), 30) << "which nothing was taken from";
}

TEST_F(RateLimits, CallersCountByThemselves) {
  EXPECT_EQ(passed(50, from("ada"), write_), 30);
  EXPECT_EQ(passed(50, from("bob"), write_), 30) << "from the same address, with a token of its own";
  EXPECT_EQ(passed(50, from("ada", "10.9.9.9"), write_), 0) << "from elsewhere, with the same token";
  EXPECT_EQ(passed(50, from("", "10.0.0.1"), read_), 20);
  EXPECT_EQ(passed(50, from("", "10.0.0.2"), read_), 20);
  EXPECT_EQ(passed(50, from("", "10.0.0.1"), read_), 0);
  EXPECT_EQ(passed(50, from("10.0.0.2"), read_), 20) << "an agent that is called like an address";
}

TEST_F(RateLimits, AHostOfIpv6HasOneNetwork) {
  EXPECT_EQ(passed(50, from("", "2001:db8:1:2::1"), read_), 20);
  EXPECT_EQ(passed(50, from("", "2001:db8:1:2:ffff::9"), read_), 0);
  EXPECT_EQ(passed(50, from("", "2001:db8:1:3::1"), read_), 20);
}

TEST_F(RateLimits, WhoIsGoneIsForgotten) {
  for (int i = 0; i < 1000; ++i) limiter_.wait(from("", fmt::format("10.0.{}.{}", i / 250, i % 250)), read_);
  EXPECT_EQ(limiter_.buckets(), 1000U);
  now_ += 20s;
  limiter_.wait(from("ada"), write_);
  EXPECT_EQ(limiter_.buckets(), 1U);
}

TEST_F(RateLimits, ZeroIsNoLimit) {
  RateLimiter none({0, 0}, [this] { return now_; });
  for (int i = 0; i < 1000; ++i) {
    EXPECT_FALSE(none.wait(from("ada"), write_));
    EXPECT_FALSE(none.wait(from("ada"), read_));
  }
  EXPECT_EQ(none.buckets(), 0U);
}

TEST_F(RateLimits, ThreadsShareABucket) {
  std::atomic<int> through = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 20; ++n) through += limiter_.wait(from("ada"), write_) ? 0 : 1;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(through, 30);
}

}  // namespace
}  // namespace sluice::test
