#pragma once

#include <gtest/gtest.h>

#include <string>

#include "tests/cli/program.h"
#include "tests/support/sanitized.h"

namespace sluice::test {

inline constexpr double kSeconds = kIsSanitized ? 20 : 10;  // on a busy machine

/// One message that names what is at fault: "error: ...", at most with a hint below.
inline void expect_refused(const Ran& ran, const std::string& message_part, double seconds = kSeconds) {
  EXPECT_EQ(ran.exit_code, 1) << ran.err;
  EXPECT_EQ(ran.err.rfind("error: ", 0), 0U) << ran.err;
  EXPECT_EQ(ran.err.find("error: ", 1), std::string::npos) << "one message only: " << ran.err;
  EXPECT_NE(ran.err.find(message_part), std::string::npos) << ran.err;
  EXPECT_LT(ran.seconds, seconds);
}

}  // namespace sluice::test
