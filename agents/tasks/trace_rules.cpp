#include "agents/tasks/trace_rules.h"

#include <algorithm>

#include "scripting/base/error.h"

namespace sluice {
namespace {

constexpr double kSelfRecall = 0.125;  // docs/TASKS.md: one step in eight starts a code of its own

std::vector<TraceRule> chain_of(Rng& rng, int first_place, int steps, int values) {
  std::vector<TraceRule> chain;
  for (int step = 0; step < steps; ++step) {
    TraceRule rule;
    rule.place = first_place + step;
    rule.next = step + 1 < steps ? rule.place + 1 : kTraceEnd;
    rule.value = static_cast<int>(rng.below(values));
    rule.recall = rule.place;
    rule.code = rule.value;
    if (step > 0 && rng.uniform() >= kSelfRecall) {
      const TraceRule& earlier = rng.pick(chain);
      rule.recall = earlier.place;
      rule.code = earlier.code;
    }
    chain.push_back(rule);
  }
  return chain;
}

}  // namespace

int TraceRules::rules() const {
  int count = 0;
  for (const auto& chain : chains) count += static_cast<int>(chain.size());
  return count;
}

TraceRules trace_rules(Rng& rng, std::span<const int> steps, int questions, int values) {
  if (steps.empty() || *std::min_element(steps.begin(), steps.end()) < 1) throw InternalError("a trace without steps");
  TraceRules result;
  int place = 0;
  for (const int length : steps) {
    result.chains.push_back(chain_of(rng, place, length, values));
    place += length;
  }
  result.asked = std::clamp(questions, 1, static_cast<int>(result.chains.size()));
  return result;
}

}  // namespace sluice
