#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <nlohmann/json.hpp>

#include "agents/flow_script.h"

namespace sluice {

/// Looks at scripts that nobody has handed in: so many at once, and no more, since each starts a process.
class FlowCheck {
 public:
  /// `inspect` gives {"name", "page", "graph", "plan"}; throws FlowError or InputError.
  explicit FlowCheck(std::function<nlohmann::json(const FlowScript&)> inspect) : inspect_(std::move(inspect)) {}

  /// {"ok": true} and what `inspect` gives, or {"ok": false, "message", "hint", "line"}: what is wrong, and where. Throws
  /// HttpProblem: 503 if too many wait, 501 if scripts cannot be checked here.
  nlohmann::json check(const FlowScript& script);

 private:
  class Turn;

  const std::function<nlohmann::json(const FlowScript&)> inspect_;
  std::mutex mutex_;
  std::condition_variable ended_;
  int running_ = 0;
};

}  // namespace sluice
