#pragma once

namespace sluice::test {

/// Whether this program is instrumented: it is many times slower, and reserves more memory than limits allow.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kIsSanitized = true;
#else
inline constexpr bool kIsSanitized = false;
#endif

/// Whether it looks for races, under which an evaluation of more than the suite `verify` takes a quarter of an hour.
#if defined(__SANITIZE_THREAD__)
inline constexpr bool kLooksForRaces = true;
#else
inline constexpr bool kLooksForRaces = false;
#endif

}  // namespace sluice::test
