#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "sandbox/sandboxed_trace.h"
#include "tests/support/sanitized.h"

namespace sluice::test {

inline constexpr double kSlowdown = kIsSanitized ? 10 : 1;

/// Limits with a child of the test's own in the place of the program.
inline SandboxLimits limits_with(std::vector<std::string> command) {
  SandboxLimits limits;
  limits.command = std::move(command);
  return limits;
}

inline constexpr const char* kGoodFlow =
    "local flow = sluice.flow{name = 'good'}\n"
    "function flow.cache(c) c.m = c.k:mean('token') end\n"
    "function flow.index(q, c) return sluice.topk(q:dot(c.m):max('head'), {k = 4, last = 1}) end\n"
    "return flow\n";

/// The diagnostic with which a script is refused: within two seconds, on a busy machine within four.
inline std::string refusal(const std::string& source, const SandboxLimits& limits, const TraceOptions& options = {}) {
  const auto start = std::chrono::steady_clock::now();
  std::string message;
  try {
    trace_sandboxed(source, "x.lua", options, limits);
  } catch (const FlowError& error) {
    message = error.what();
    EXPECT_EQ(error.where().file, "x.lua");
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_LT(took.count(), 4 * kSlowdown) << source.substr(0, 200);
  EXPECT_NE(message, "") << "accepted: " << source.substr(0, 200);
  return message;
}

}  // namespace sluice::test
