#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "agents/mcp/harness_tools.h"
#include "tests/harness/harness_test.h"

namespace sluice::mcp::test {

using nlohmann::json;

/// The tools over a store of their own, whose verdicts the tests write.
class HarnessTools : public testing::HarnessTest {
 protected:
  HarnessTools();

  const Tool& tool(const std::string& name) const;
  /// Calls a tool as "ada" and checks what every answer must hold to: its schema, and that it is not too long.
  json call(const std::string& name, const json& arguments, std::optional<Identity> identity = Identity{"ada", Role::kAgent});
  /// Structured content of a call that must go well.
  json structured(const std::string& name, const json& arguments);
  std::string text(const std::string& name, const json& arguments, bool is_error = false);
  /// Hands in a shipped flow; `more` replaces what it says. Its id.
  int64_t submit(const std::string& flow, const json& more = json::object());
  /// Puts a verdict on the submission that waits longest.
  void decide(double accuracy, double speedup, store::Status status = store::Status::kPassed);

  std::optional<HarnessService> service_;
  std::vector<Tool> tools_;
  bool sent_token_ = false;
  std::atomic<bool> wanted_ = true;
  std::chrono::milliseconds patience_ = std::chrono::seconds(50);
};

}  // namespace sluice::mcp::test
