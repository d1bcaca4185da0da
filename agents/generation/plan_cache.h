#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>

#include "agents/http/turns.h"
#include "scripting/graph/plan.h"

namespace sluice {

/// Plans of flows by name, those that were used last. To trace and compile a script may take seconds: it is done in the thread
/// that asks, so that no engine waits for it; several who ask for one at once have it made once. Any number of threads may use
/// it.
class PlanCache {
 public:
  explicit PlanCache(std::function<Plan(const std::string& flow)> make,
                     std::chrono::milliseconds patience = std::chrono::seconds(20));

  /// Throws what `make` throws, and HttpProblem (503) if too many are made just now, or somebody makes this one for too long.
  std::shared_ptr<const Plan> get(const std::string& flow, const std::string& caller);
  /// How many wait for a plan that somebody makes.
  int waiting() const;

 private:
  using Clock = std::chrono::steady_clock;
  using Entry = std::pair<std::string, std::shared_ptr<const Plan>>;

  /// With the lock held; null if it is not there.
  std::shared_ptr<const Plan> find(const std::string& flow);
  /// Waits while somebody makes it, without a turn. Null if it is not there even then. Throws HttpProblem.
  std::shared_ptr<const Plan> wait_for(const std::string& flow, Clock::time_point deadline);
  /// Whether the caller is to make it, and then to call `end`.
  bool begin(const std::string& flow);
  /// `plan`: null if making it failed; who waited for it tries again.
  void end(const std::string& flow, std::shared_ptr<const Plan> plan);

  const std::function<Plan(const std::string& flow)> make_;
  const std::chrono::milliseconds patience_;
  Turns turns_;
  mutable std::mutex mutex_;
  std::condition_variable made_;
  std::set<std::string> making_;
  int waiting_ = 0;
  std::list<Entry> plans_;  // the one used last first
};

}  // namespace sluice
