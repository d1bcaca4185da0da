#include "agents/evaluation/recompute_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "agents/evaluation/flow_files.h"
#include "agents/evaluation/trace_options.h"
#include "host/serving/engine.h"
#include "scripting/base/error.h"

namespace sluice {
namespace {

constexpr size_t kKept = 64;  // rules: shares may be any numbers

std::shared_ptr<const Recompute> trace_rule(const std::string& file, const ModelConfig& config, const ParameterValues& values) {
  TraceOptions options = trace_options(config);
  options.parameters = values;
  return trace_file(file, options).recompute;
}

}  // namespace

std::vector<std::string> recompute_rule_names() { return shipped_flows("recompute"); }

std::shared_ptr<const RecomputeRule> RecomputeRules::find(const RecomputeChoice& choice, const Plan* flow) {
  const std::shared_ptr<const Recompute> own = flow == nullptr ? nullptr : flow->graph.recompute;
  if (own == nullptr || !choice.rule.empty())
    return find(choice, flow == nullptr ? EngineOptions().page : flow->graph.geometry.page);
  if (choice.boundary || choice.share)
    throw InputError("the flow's own rule has neither a boundary nor a share", "name a rule that has");
  const std::lock_guard lock(mutex_);
  const std::string key = fmt::format("of a flow, {}", static_cast<const void*>(own.get()));
  if (auto rule = kept(key); rule != nullptr && &rule->rule() == own.get()) return rule;
  std::shared_ptr<const RecomputeRule> rule = make_recompute_rule(own);
  keep(key, rule);
  return rule;
}

std::shared_ptr<const RecomputeRule> RecomputeRules::find(const RecomputeChoice& choice, int page) {
  const std::string name = choice.rule.empty() ? "sparsex" : choice.rule;
  const std::vector<std::string> names = recompute_rule_names();
  if (std::find(names.begin(), names.end(), name) == names.end())
    throw InputError(fmt::format("no rule is called {:.64}", name), fmt::format("there are {}", fmt::join(names, ", ")));
  ParameterValues values;
  if (choice.boundary) values["boundary"] = fmt::format("{}", *choice.boundary);
  if (choice.share) values["share"] = fmt::format("{}", *choice.share);
  std::string key = fmt::format("{} {}", name, page);
  for (const auto& [parameter, value] : values) key += fmt::format(" {}={}", parameter, value);
  const std::lock_guard lock(mutex_);
  if (auto rule = kept(key)) return rule;
  const std::string file = shipped_flows_directory() + "/recompute/" + name + ".lua";
  std::shared_ptr<const Recompute> traced = trace_rule(file, config_, values);
  if (traced->kind == Recompute::Kind::kSelected && traced->graph.geometry.page != page) {
    values["page"] = fmt::format("{}", page);
    traced = trace_rule(file, config_, values);
  }
  std::shared_ptr<const RecomputeRule> rule = make_recompute_rule(std::move(traced));
  keep(key, rule);
  return rule;
}

std::shared_ptr<const RecomputeRule> RecomputeRules::kept(const std::string& key) {
  const auto found = std::find_if(rules_.begin(), rules_.end(), [&](const auto& each) { return each.first == key; });
  if (found == rules_.end()) return nullptr;
  rules_.splice(rules_.begin(), rules_, found);
  return rules_.front().second;
}

void RecomputeRules::keep(const std::string& key, std::shared_ptr<const RecomputeRule> rule) {
  std::erase_if(rules_, [&](const auto& each) { return each.first == key; });
  rules_.emplace_front(key, std::move(rule));
  if (rules_.size() > kKept) rules_.pop_back();
}

}  // namespace sluice
