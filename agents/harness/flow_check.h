#pragma once

#include <functional>
#include <nlohmann/json.hpp>

#include "agents/flow_script.h"
#include "agents/harness/turns.h"

namespace sluice {

/// Looks at scripts that nobody has handed in: so many at once, and no more, since each starts a process.
class FlowCheck {
 public:
  /// `inspect` gives {"name", "page", "graph", "plan"}; throws FlowError or InputError.
  explicit FlowCheck(std::function<nlohmann::json(const FlowScript&)> inspect);

  /// {"ok": true} and what `inspect` gives, or {"ok": false, "file", "line", "message", "hint"}: what is wrong, and where. Throws
  /// HttpProblem: 503 if too many wait, 501 if scripts cannot be checked here.
  nlohmann::json check(const FlowScript& script);

 private:
  const std::function<nlohmann::json(const FlowScript&)> inspect_;
  Turns turns_;
};

}  // namespace sluice
