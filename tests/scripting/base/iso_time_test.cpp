#include "scripting/base/iso_time.h"

#include <gtest/gtest.h>

#include <ctime>
#include <limits>

namespace sluice {
namespace {

constexpr int64_t kSecond = 1'000'000;

TEST(IsoTime, IsRightBefore1970AndLongAfter) {
  EXPECT_EQ(iso_time(0), "1970-01-01T00:00:00.000000Z");
  EXPECT_EQ(iso_time(-1), "1969-12-31T23:59:59.999999Z");
  EXPECT_EQ(iso_time(-96'819'554'025'198), "1966-12-07T09:40:45.974802Z");
  EXPECT_EQ(iso_time(1'763'727'297'060'807), "2025-11-21T12:14:57.060807Z");
  EXPECT_EQ(iso_time(10'413'792'000 * kSecond), "2300-01-01T00:00:00.000000Z");
  EXPECT_EQ(iso_time(253'402'300'800 * kSecond - 1), "9999-12-31T23:59:59.999999Z");
  EXPECT_EQ(iso_time(253'402'300'800 * kSecond), "+010000-01-01T00:00:00.000000Z");
  EXPECT_EQ(iso_time(-62'167'219'200 * kSecond), "0000-01-01T00:00:00.000000Z");
  EXPECT_EQ(iso_time(-62'167'219'200 * kSecond - 1), "-000001-12-31T23:59:59.999999Z");
  EXPECT_EQ(iso_time(std::numeric_limits<int64_t>::max()), "+294247-01-10T04:00:54.775807Z");
  EXPECT_EQ(iso_time(std::numeric_limits<int64_t>::min()), "-290308-12-21T19:59:05.224192Z");
  EXPECT_EQ(iso_day(-1), "1969-12-31");
}

TEST(IsoTime, AgreesWithTheCLibrary) {
  for (int64_t second = -80'000'000'000; second < 300'000'000'000; second += 7'654'321) {
    const auto time = static_cast<std::time_t>(second);
    std::tm parts{};
    ::gmtime_r(&time, &parts);
    if (parts.tm_year + 1900 < 0 || parts.tm_year + 1900 > 9999) continue;
    char text[40];
    ASSERT_GT(std::strftime(text, sizeof(text), "-%m-%dT%H:%M:%S.000000Z", &parts), 0U);
    ASSERT_EQ(iso_time(second * kSecond).substr(4), text) << second;
  }
}

TEST(IsoTime, IsReadAsItIsWritten) {
  const int64_t most = std::numeric_limits<int64_t>::max();
  for (const int64_t time :
       {int64_t{0}, int64_t{-1}, int64_t{1'763'727'297'060'807}, most, -most, -62'167'219'200 * kSecond - 1}) {
    EXPECT_EQ(microseconds_of(iso_time(time)), time);
  }
  for (const char* text : {"", "2026", "2026-02-30T00:00:00.000000Z", "2026-13-01T00:00:00.000000Z",
                           "2026-01-01T25:00:00.000000Z", "2026-01-01T00:00:00.000000", "2026-01-01T00:00:00.000000Zx",
                           "1966-12-10T10:10:45.-25198Z", "+999999-01-01T00:00:00.000000Z", "+002026-01-01T00:00:00.000000Z"}) {
    EXPECT_FALSE(microseconds_of(text)) << text;
  }
}

}  // namespace
}  // namespace sluice
