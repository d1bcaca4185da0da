#include <algorithm>

#include "agents/tasks/generators.h"
#include "agents/tasks/mini_document.h"
#include "agents/tasks/trace_rules.h"

namespace sluice::mini {
namespace {

/// Steps of a trace: selections of a share of the pages miss less in longer texts, so that these ask for more look-ups.
int steps_in(int tokens) { return std::clamp(tokens / 128, 16, 48); }

constexpr int kTraces = 3;

}  // namespace

Samples trace(const TaskContext& context, Rng& rng, int tokens, int questions) {
  Document document("trace", context, rng, tokens, 3, 4);
  const TraceRules rules = trace_rules(rng, document.size(), questions, static_cast<int>(context.mini->values.size()),
                                       {.steps = steps_in(tokens), .rules = kTraces * steps_in(tokens)});
  const Words keys = document.keys(rules.rules());
  const auto key = [&](int place) { return place == kTraceEnd ? std::string("end") : keys[place]; };
  const auto value = [&](int index) { return context.mini->values[index]; };
  std::vector<Words> statements;
  for (const auto& chain : rules.chains) {
    for (const TraceRule& rule : chain) {
      statements.push_back({"rule", key(rule.place), "to", key(rule.next), value(rule.value), "from", key(rule.recall), ";"});
    }
  }
  document.scatter_shuffled(std::move(statements));
  document.distract(Kind::kRule);
  Samples samples;
  for (int asked = 0; asked < rules.asked; ++asked) {
    Words answer;
    for (const TraceRule& rule : rules.chains[asked]) {
      const Words step = {"at", key(rule.place), value(rule.value), key(rule.recall), value(rule.code), "to", key(rule.next),
                          ";"};
      answer.insert(answer.end(), step.begin(), step.end());
    }
    samples.push_back(document.ask({"run", key(rules.chains[asked].front().place), ":"}, answer));
  }
  return samples;
}

}  // namespace sluice::mini
