// Days are counted by Howard Hinnant's "chrono-Compatible Low-Level Date Algorithms": <chrono> ends with the year 32767, and fmt
// and the C library round times before 1970 towards it.

#include "scripting/base/iso_time.h"

#include <fmt/format.h>

#include <array>
#include <charconv>

namespace sluice {
namespace {

constexpr int64_t kSecond = 1'000'000;
constexpr int64_t kDay = 86'400 * kSecond;
constexpr int64_t kYearsOfEra = 400;
constexpr int64_t kDaysOfEra = 146'097;
constexpr int64_t kEpoch = 719'468;  // days from 0000-03-01 to 1970-01-01

struct Date {
  int64_t year = 0;
  int64_t month = 1;
  int64_t day = 1;
};

constexpr int64_t floor_divide(int64_t value, int64_t by) { return value / by - (value % by < 0 ? 1 : 0); }

Date date_of(int64_t days) {
  const int64_t shifted = days + kEpoch;
  const int64_t era = floor_divide(shifted, kDaysOfEra);
  const int64_t day = shifted - era * kDaysOfEra;
  const int64_t year = (day - day / 1460 + day / 36'524 - day / 146'096) / 365;
  const int64_t day_of_year = day - (365 * year + year / 4 - year / 100);  // from the first of March on
  const int64_t month = (5 * day_of_year + 2) / 153;
  Date date;
  date.day = day_of_year - (153 * month + 2) / 5 + 1;
  date.month = month < 10 ? month + 3 : month - 9;
  date.year = era * kYearsOfEra + year + (date.month <= 2 ? 1 : 0);
  return date;
}

int64_t days_of(const Date& date) {
  const int64_t shifted = date.year - (date.month <= 2 ? 1 : 0);
  const int64_t era = floor_divide(shifted, kYearsOfEra);
  const int64_t year = shifted - era * kYearsOfEra;
  const int64_t month = date.month > 2 ? date.month - 3 : date.month + 9;
  const int64_t day_of_year = (153 * month + 2) / 5 + date.day - 1;
  return era * kDaysOfEra + 365 * year + year / 4 - year / 100 + day_of_year - kEpoch;
}

std::string text_of(const Date& date) {
  const bool is_plain = date.year >= 0 && date.year <= 9999;
  const std::string year = is_plain ? fmt::format("{:04}", date.year) : fmt::format("{:+07}", date.year);
  return fmt::format("{}-{:02}-{:02}", year, date.month, date.day);
}

/// A number of exactly `digits` digits at the start of `text`, and `behind` behind it, both of which are taken away.
bool take(std::string_view& text, size_t digits, std::string_view behind, int64_t& number) {
  if (text.size() < digits + behind.size() || text.find_first_not_of("0123456789") < digits) return false;
  std::from_chars(text.data(), text.data() + digits, number);
  text.remove_prefix(digits);
  if (!text.starts_with(behind)) return false;
  text.remove_prefix(behind.size());
  return true;
}

}  // namespace

std::string iso_day(int64_t microseconds) { return text_of(date_of(floor_divide(microseconds, kDay))); }

std::string iso_time(int64_t microseconds) {
  const int64_t days = floor_divide(microseconds, kDay);
  const int64_t behind = microseconds % kDay;  // the first day's begin would not fit
  const int64_t rest = behind < 0 ? behind + kDay : behind;
  const int64_t seconds = rest / kSecond;
  return fmt::format("{}T{:02}:{:02}:{:02}.{:06}Z", text_of(date_of(days)), seconds / 3600, seconds / 60 % 60, seconds % 60,
                     rest % kSecond);
}

std::optional<int64_t> microseconds_of(const std::string& text) {
  std::string_view rest = text;
  const bool has_sign = rest.starts_with('+') || rest.starts_with('-');
  const bool is_before = rest.starts_with('-');
  if (has_sign) rest.remove_prefix(1);
  Date date;
  std::array<int64_t, 4> parts{};  // hours, minutes, seconds, microseconds
  const bool is_whole = take(rest, has_sign ? 6 : 4, "-", date.year) && take(rest, 2, "-", date.month) &&
                        take(rest, 2, "T", date.day) && take(rest, 2, ":", parts[0]) && take(rest, 2, ":", parts[1]) &&
                        take(rest, 2, ".", parts[2]) && take(rest, 6, "Z", parts[3]) && rest.empty();
  if (!is_whole) return std::nullopt;
  if (is_before) date.year = -date.year;
  int64_t seconds = days_of(date) * 86'400 + parts[0] * 3600 + parts[1] * 60 + parts[2];
  int64_t fraction = parts[3];
  if (seconds < 0) {  // towards zero: the product of the earliest time would not fit
    ++seconds;
    fraction -= kSecond;
  }
  int64_t result = 0;
  if (__builtin_mul_overflow(seconds, kSecond, &result) || __builtin_add_overflow(result, fraction, &result)) return std::nullopt;
  // 2026-02-30, say, or a hundredth month, is no time.
  return iso_time(result) == text ? std::optional(result) : std::nullopt;
}

}  // namespace sluice
