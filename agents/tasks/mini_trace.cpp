#include <algorithm>
#include <numeric>

#include "agents/tasks/generators.h"
#include "agents/tasks/mini_document.h"
#include "agents/tasks/trace_rules.h"

namespace sluice::mini {
namespace {

constexpr int kLeastLines = 4;
constexpr int kAnsweredStep = 8;  // words: at A v R c to B ;

/// Steps of each trace. The long one tells good flows apart, the short ones weak flows. Selections of a share of the pages miss
/// less in longer texts, so that these ask for more look-ups. At least a quarter of the lines is hay: a text too short for all
/// three traces has one.
std::vector<int> steps_in(int tokens, int lines) {
  const int most = std::clamp(tokens / 64, 24, 64);
  const std::vector<int> steps = {most, std::max(8, most / 4), std::max(6, most / 8)};
  const int room = lines * 3 / 4;
  return std::accumulate(steps.begin(), steps.end(), 0) <= room ? steps : std::vector{std::min(most, room)};
}

}  // namespace

Samples trace(const TaskContext& context, Rng& rng, int tokens, int questions) {
  Document document("trace", context, rng, tokens, 3, kLeastLines);
  std::vector<int> steps = steps_in(tokens, document.size());
  rng.shuffle(steps);
  const TraceRules rules = trace_rules(rng, steps, questions, static_cast<int>(context.mini->values.size()));
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
    samples.push_back(document.ask({"run", key(rules.chains[asked].front().place), ":"}, answer, kAnsweredStep));
  }
  return samples;
}

}  // namespace sluice::mini
