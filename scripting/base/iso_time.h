#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace sluice {

/// "2026-11-21T12:14:57.060807Z" of microseconds since 1970 in UTC, before which they are negative. A year that has not four
/// digits has a sign and at least six, as ISO 8601 and ECMAScript have it: "+010000-01-01T00:00:00.000000Z".
std::string iso_time(int64_t microseconds);

/// Its day: "2026-11-21".
std::string iso_day(int64_t microseconds);

/// The opposite of iso_time; nothing if `text` is not of that form, or no time that has microseconds in 64 bits.
std::optional<int64_t> microseconds_of(const std::string& text);

}  // namespace sluice
