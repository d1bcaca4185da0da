#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "host/transformer/config.h"
#include "kernels/device/recompute_rule.h"
#include "scripting/graph/plan.h"

namespace sluice {

/// How somebody asks for a rule.
struct RecomputeChoice {
  std::string rule;             // a shipped one; empty: that of the flow, and "sparsex" where it has none
  std::optional<int> boundary;  // parameters of the rule, which may have none of that name
  std::optional<double> share;
};

/// Names of the shipped rules, sorted.
std::vector<std::string> recompute_rule_names();

/// Rules for one model, ready to run; those that were used last are kept. Any number of threads may use it.
class RecomputeRules {
 public:
  explicit RecomputeRules(ModelConfig config) : config_(std::move(config)) {}

  /// A rule for requests of a flow (null: dense attention). Throws InputError.
  std::shared_ptr<const RecomputeRule> find(const RecomputeChoice& choice, const Plan* flow);
  /// The same of a shipped rule, for blocks of `page`.
  std::shared_ptr<const RecomputeRule> find(const RecomputeChoice& choice, int page);

 private:
  std::shared_ptr<const RecomputeRule> kept(const std::string& key);
  void keep(const std::string& key, std::shared_ptr<const RecomputeRule> rule);

  const ModelConfig config_;
  std::mutex mutex_;
  std::list<std::pair<std::string, std::shared_ptr<const RecomputeRule>>> rules_;  // the one used last first
};

}  // namespace sluice
