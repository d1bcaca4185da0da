#pragma once

#include <chrono>
#include <functional>
#include <nlohmann/json.hpp>

#include "agents/evaluation/flow_script.h"
#include "agents/http/turns.h"

namespace sluice {

/// Looks at scripts that nobody has handed in: so many at once, and no more, since each starts a process.
class FlowCheck {
 public:
  /// A check takes at most two seconds: so long an agent waits where another one has many in the line, and of twenty agents who
  /// all send such checks each still has its own.
  static constexpr Turns::Limits kLimits{
      .most = 2, .line = 64, .patience = std::chrono::seconds(20), .leaves_room = false, .frees_much = true};

  /// `inspect` gives {"name", "page", "graph", "plan"}; throws FlowError or InputError.
  explicit FlowCheck(std::function<nlohmann::json(const FlowScript&)> inspect, const Turns::Limits& limits = kLimits);

  /// {"ok": true} and what `inspect` gives, or {"ok": false, "file", "line", "message", "hint"}: what is wrong, and where. The
  /// caller has its turn from then on. Throws HttpProblem: 503 if too many wait, 501 if scripts cannot be checked here.
  nlohmann::json check(const FlowScript& script, Caller& caller);

 private:
  const std::function<nlohmann::json(const FlowScript&)> inspect_;
  Turns turns_;
};

}  // namespace sluice
