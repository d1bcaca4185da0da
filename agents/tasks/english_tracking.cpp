#include <fmt/format.h>

#include <algorithm>

#include "agents/tasks/english_document.h"
#include "agents/tasks/english_words.h"
#include "agents/tasks/generators.h"

namespace sluice::english {
namespace {

constexpr int kMostChains = 200;
constexpr int kVariables = 4;  // three hops
constexpr int kDigits = 5;

constexpr const char* kInstruction =
    "Below is a long note. Some of its sentences give values to variables, whose names are five capital letters. A variable "
    "either "
    "gets a number or copies another variable.";

std::string number_statement(const std::string& name, const std::string& number) {
  return fmt::format("Variable {} is set to {}.", name, number);
}

std::string copy_statement(const std::string& name, const std::string& source) {
  return fmt::format("Variable {} copies {}.", name, source);
}

Question question(const std::string& name) {
  return {fmt::format(
              "Question: Starting from variable {0}, go back to where its value comes from. List the variable that {0} copies, "
              "then the one which that copies, and so on, and at last the number; separate them by commas.",
              name),
          fmt::format("Going back from {}:", name)};
}

}  // namespace

Samples variable_tracking(const TaskContext& context, Rng& rng, int tokens, int questions) {
  Document document("variable_tracking", context, rng, tokens, kInstruction, question("XQWZX"));
  const int fit = document.capacity(number_statement("XQWZX", "88888"), kVariables);
  const int count = std::clamp(fit / (4 * kVariables), 1, kMostChains);
  const auto names = capital_names(rng, count * kVariables);
  const auto values = numbers(rng, count, kDigits);
  std::vector<std::string> statements;
  for (int chain = 0; chain < count; ++chain) {
    const auto* name = &names[static_cast<size_t>(chain) * kVariables];
    statements.push_back(number_statement(name[0], values[chain]));
    for (int hop = 1; hop < kVariables; ++hop) statements.push_back(copy_statement(name[hop], name[hop - 1]));
  }
  rng.shuffle(statements);
  document.fill_scattered(statements);
  std::vector<int> chains(count);
  for (int i = 0; i < count; ++i) chains[i] = i;
  Samples samples;
  for (const int chain : rng.distinct(chains, std::min(questions, count))) {
    const auto* name = &names[static_cast<size_t>(chain) * kVariables];
    samples.push_back(document.ask(question(name[3]), fmt::format("{} {} {} {}", name[2], name[1], name[0], values[chain]),
                                   Scoring::kExact, Items::kNames, 1));
  }
  return samples;
}

}  // namespace sluice::english
