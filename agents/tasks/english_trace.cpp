#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "agents/tasks/english_document.h"
#include "agents/tasks/english_words.h"
#include "agents/tasks/generators.h"
#include "agents/tasks/trace_rules.h"

namespace sluice::english {
namespace {

constexpr int kValues = 90;     // 10 to 99
constexpr int kMostSteps = 64;  // of a trace
constexpr int kMostRules = 250;
constexpr int kStepWords = 10;  // of a line of the answer
constexpr const char* kDone = "DONE";

constexpr const char* kInstruction =
    "Below are rules, among other sentences. The rule of a place says where to go next, a value, and a place to recall. Starting "
    "from a "
    "place, follow the rules step by step until a rule says to stop. Write one line for each step, in exactly this format:\n"
    "at PLACE value VALUE recall RECALLED code CODE to NEXT\n"
    "CODE is the code that you wrote earlier for the recalled place; where the recalled place is the place itself, CODE is its "
    "value. "
    "In the last step NEXT is STOP. After the last step write DONE.";

/// Steps of each trace in a document that has room for `fit` rules: all as long, but for the last, which is not asked for if it
/// is shorter.
std::vector<int> steps_in(int fit) {
  const int most = std::min(kMostSteps, fit);
  std::vector<int> steps;
  int left = std::clamp(fit * 3 / 4, most, kMostRules);
  while (left > 0) {
    steps.push_back(std::min(left, most));
    left -= steps.back();
  }
  return steps;
}

std::string rule_text(const std::string& place, const std::string& next, int value, const std::string& recall) {
  return fmt::format("Rule of {}: value {}, recall {}, then {}.", place, value, recall,
                     next == "STOP" ? std::string("STOP") : "go to " + next);
}

Question question(const std::string& place) {
  return {fmt::format("Question: Start at {} and write all steps.", place), "Steps:\n"};
}

}  // namespace

Samples trace(const TaskContext& context, Rng& rng, int tokens, int questions) {
  Document document("trace", context, rng, tokens, kInstruction, question("XQWZX"));
  // Names differ in their number of tokens; a tenth of the room is left for that.
  const int fit = document.capacity(rule_text("XQWZX", "ZXQWZ", 88, "QZXWX"), 4) * 9 / 10;
  const std::vector<int> steps = steps_in(fit);
  const auto long_ones = std::count(steps.begin(), steps.end(), steps.front());
  const TraceRules rules = trace_rules(rng, steps, std::min(questions, static_cast<int>(long_ones)), kValues);
  const auto names = capital_names(rng, rules.rules());
  const auto name = [&](int place) { return place == kTraceEnd ? std::string("STOP") : names[place]; };
  const auto number = [](int value) { return value + 10; };
  std::vector<std::string> statements;
  for (const auto& chain : rules.chains) {
    for (const TraceRule& rule : chain) {
      statements.push_back(rule_text(name(rule.place), name(rule.next), number(rule.value), name(rule.recall)));
    }
  }
  rng.shuffle(statements);
  document.fill_scattered(statements);
  Samples samples;
  for (int asked = 0; asked < rules.asked; ++asked) {
    std::string answer;
    for (const TraceRule& rule : rules.chains[asked]) {
      if (!answer.empty()) answer += '\n';
      answer += fmt::format("at {} value {} recall {} code {} to {}", name(rule.place), number(rule.value), name(rule.recall),
                            number(rule.code), name(rule.next));
    }
    Sample sample =
        document.ask(question(name(rules.chains[asked].front().place)), answer, Scoring::kExact, Items::kWords, kStepWords);
    sample.stop = kDone;
    samples.push_back(std::move(sample));
  }
  return samples;
}

}  // namespace sluice::english
