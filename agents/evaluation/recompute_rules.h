#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "host/transformer/config.h"
#include "kernels/device/recompute_rule.h"
#include "scripting/graph/plan.h"
#include "scripting/lua/parameters.h"

namespace sluice {

/// How somebody asks for a rule.
struct RecomputeChoice {
  std::string rule;             // a shipped one; empty: that of the flow, and "sparsex" where it has none
  std::optional<int> boundary;  // parameters of the rule, which may have none of that name
  std::optional<double> share;
};

/// Names of the shipped rules, sorted, as they were when they were first asked for.
const std::vector<std::string>& recompute_rule_names();

/// Rules for one model, ready to run; those that were used last are kept. Any number of threads may use it.
class RecomputeRules {
 public:
  /// Reads the shipped rules.
  explicit RecomputeRules(ModelConfig config);

  /// A rule for requests of a flow (null: dense attention). Null where none was named and the usual one cannot be had for this
  /// model and these pages: then everything is computed again. Throws InputError.
  std::shared_ptr<const RecomputeRule> find(const RecomputeChoice& choice, const Plan* flow);
  /// A shipped rule, for blocks of `page`. Throws InputError.
  std::shared_ptr<const RecomputeRule> find_shipped(const RecomputeChoice& choice, int page);

 private:
  std::shared_ptr<const RecomputeRule> kept(const std::string& key);
  /// What it is given, or what another has kept meanwhile.
  std::shared_ptr<const RecomputeRule> keep(const std::string& key, std::shared_ptr<const RecomputeRule> rule);
  std::shared_ptr<const Recompute> trace_rule(const std::string& name, const ParameterValues& values) const;

  const ModelConfig config_;
  std::map<std::string, std::string> sources_;  // by name
  std::mutex mutex_;
  std::list<std::pair<std::string, std::shared_ptr<const RecomputeRule>>> rules_;  // the one used last first
};

}  // namespace sluice
