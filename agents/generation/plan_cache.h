#pragma once

#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "agents/server/turns.h"
#include "scripting/graph/plan.h"

namespace sluice {

/// Plans of flows by name, those that were used last. To trace and compile a script may take seconds: it is done in the thread
/// that asks, so that no engine waits for it. Any number of threads may use it.
class PlanCache {
 public:
  explicit PlanCache(std::function<Plan(const std::string& flow)> make);

  /// Throws what `make` throws, and HttpProblem (503) if too many are made just now.
  std::shared_ptr<const Plan> get(const std::string& flow, const std::string& caller);

 private:
  using Entry = std::pair<std::string, std::shared_ptr<const Plan>>;

  std::shared_ptr<const Plan> find(const std::string& flow);

  const std::function<Plan(const std::string& flow)> make_;
  Turns turns_;
  std::mutex mutex_;
  std::list<Entry> plans_;  // the one used last first
};

}  // namespace sluice
