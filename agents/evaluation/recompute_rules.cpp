#include "agents/evaluation/recompute_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "agents/evaluation/flow_files.h"
#include "agents/evaluation/trace_options.h"
#include "host/serving/engine.h"
#include "scripting/base/error.h"
#include "scripting/base/input_text.h"

namespace sluice {
namespace {

constexpr size_t kKept = 64;  // rules: shares may be any numbers

}  // namespace

const std::vector<std::string>& recompute_rule_names() {
  static const std::vector<std::string> names = shipped_flows("recompute");
  return names;
}

RecomputeRules::RecomputeRules(ModelConfig config) : config_(std::move(config)) {
  for (const std::string& name : recompute_rule_names())
    sources_[name] = read_input(shipped_flows_directory() + "/recompute/" + name + ".lua", kLargestSource);
}

std::shared_ptr<const RecomputeRule> RecomputeRules::find(const RecomputeChoice& choice, const Plan* flow) {
  const std::shared_ptr<const Recompute> own = flow == nullptr ? nullptr : flow->graph.recompute;
  const int page = flow == nullptr ? EngineOptions().page : flow->graph.geometry.page;
  if (!choice.rule.empty()) return find_shipped(choice, page);
  if (own != nullptr) {
    const std::string key = fmt::format("of a flow, {}", static_cast<const void*>(own.get()));  // which the rule keeps alive
    if (auto rule = kept(key)) return rule;
    return keep(key, make_recompute_rule(own));
  }
  try {
    return find_shipped({"sparsex", {}, {}}, page);
  } catch (const InputError&) {
    return nullptr;
  }
}

std::shared_ptr<const RecomputeRule> RecomputeRules::find_shipped(const RecomputeChoice& choice, int page) {
  if (!sources_.contains(choice.rule)) {
    throw InputError(fmt::format("no rule is called {:.64}", choice.rule),
                     fmt::format("there are {}", fmt::join(recompute_rule_names(), ", ")));
  }
  if (choice.boundary.value_or(0) >= config_.layers) {
    throw InputError(fmt::format("boundary = {}: there is no such layer", *choice.boundary),
                     fmt::format("the model has layers 0 to {}", config_.layers - 1));
  }
  ParameterValues values;
  if (choice.boundary) values["boundary"] = fmt::format("{}", *choice.boundary);
  if (choice.share) values["share"] = fmt::format("{}", *choice.share);
  std::string key = fmt::format("{} {}", choice.rule, page);
  for (const auto& [parameter, value] : values) key += fmt::format(" {}={}", parameter, value);
  if (auto rule = kept(key)) return rule;
  std::shared_ptr<const Recompute> traced = trace_rule(choice.rule, values);
  if (traced->kind == Recompute::Kind::kSelected && traced->graph.geometry.page != page) {
    values["page"] = fmt::format("{}", page);
    traced = trace_rule(choice.rule, values);
  }
  return keep(key, make_recompute_rule(std::move(traced)));
}

std::shared_ptr<const Recompute> RecomputeRules::trace_rule(const std::string& name, const ParameterValues& values) const {
  constexpr double kSeconds = 60;  // it is ours, and a machine may have much to do
  TraceOptions options = trace_options(config_);
  options.seconds = kSeconds;
  options.parameters = values;
  return trace(sources_.at(name), name, options).recompute;
}

std::shared_ptr<const RecomputeRule> RecomputeRules::kept(const std::string& key) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(rules_.begin(), rules_.end(), [&](const auto& each) { return each.first == key; });
  if (found == rules_.end()) return nullptr;
  rules_.splice(rules_.begin(), rules_, found);
  return rules_.front().second;
}

std::shared_ptr<const RecomputeRule> RecomputeRules::keep(const std::string& key, std::shared_ptr<const RecomputeRule> rule) {
  const std::lock_guard lock(mutex_);
  const auto found = std::find_if(rules_.begin(), rules_.end(), [&](const auto& each) { return each.first == key; });
  if (found != rules_.end()) return found->second;
  rules_.emplace_front(key, std::move(rule));
  if (rules_.size() > kKept) rules_.pop_back();
  return rules_.front().second;
}

}  // namespace sluice
