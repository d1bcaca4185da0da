#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "agents/tasks/english_document.h"
#include "agents/tasks/english_words.h"
#include "agents/tasks/generators.h"

namespace sluice::english {
namespace {

constexpr int kDigits = 7;
constexpr int kMostFacts = 1000;
constexpr int kValuesOfAName = 4;
constexpr int kNamesOfAQuery = 4;

constexpr const char* kInstruction =
    "Below is a long note. Among other things it mentions access codes; remember them, you will be asked about them.";

std::string statement(const std::string& name, const std::string& code) {
  return fmt::format("The access code for {} is {}.", name, code);
}

Question one_code(const std::string& name) {
  return {fmt::format("Question: What is the access code for {}? Answer with the code alone.", name),
          fmt::format("The access code for {} is", name)};
}

Question all_codes(const std::string& name) {
  return {fmt::format("Question: What are all the access codes for {}? List them in the order of the note, separated by commas.",
                      name),
          fmt::format("The access codes for {} are, in order:", name)};
}

Question several_names(const std::vector<std::string>& names) {
  const std::string list = fmt::format("{}", fmt::join(names, ", "));
  return {fmt::format("Question: What are the access codes for {}? List them in this order, separated by commas.", list),
          fmt::format("The access codes for {} are, in this order:", list)};
}

struct Fact {
  std::string name;
  std::string code;
};

/// One fact of its own name each; half of the room, at least `least`.
std::vector<Fact> write_facts(Document& document, Rng& rng, int least, bool single) {
  const int fit = document.capacity(statement("strange-mountain", std::string(kDigits, '8')), least);
  const int count = single ? 1 : std::clamp(fit / 2, least, kMostFacts);
  const auto names = hyphenated_names(rng, count);
  const auto codes = numbers(rng, count, kDigits);
  std::vector<Fact> facts;
  std::vector<std::string> statements;
  for (int i = 0; i < count; ++i) {
    facts.push_back({names[i], codes[i]});
    statements.push_back(statement(names[i], codes[i]));
  }
  document.fill_scattered(statements);
  return facts;
}

}  // namespace

Samples needle_single(const TaskContext& context, Rng& rng, int tokens, int) {
  Document document("needle_single", context, rng, tokens, kInstruction, one_code("strange-mountain"));
  const Fact fact = write_facts(document, rng, 1, true).front();
  return {document.ask(one_code(fact.name), fact.code, Scoring::kExact, Items::kNumbers, 1)};
}

Samples needle_multikey(const TaskContext& context, Rng& rng, int tokens, int questions) {
  Document document("needle_multikey", context, rng, tokens, kInstruction, one_code("strange-mountain"));
  const std::vector<Fact> facts = write_facts(document, rng, 2, false);
  Samples samples;
  for (const Fact& fact : rng.distinct(facts, std::min<size_t>(questions, facts.size()))) {
    samples.push_back(document.ask(one_code(fact.name), fact.code, Scoring::kExact, Items::kNumbers, 1));
  }
  return samples;
}

Samples needle_multiquery(const TaskContext& context, Rng& rng, int tokens, int questions) {
  Document document("needle_multiquery", context, rng, tokens, kInstruction,
                    several_names(std::vector<std::string>(kNamesOfAQuery, "strange-mountain")));
  const std::vector<Fact> facts = write_facts(document, rng, kNamesOfAQuery, false);
  Samples samples;
  for (int i = 0; i < questions; ++i) {
    std::vector<std::string> names;
    std::vector<std::string> codes;
    for (const Fact& fact : rng.distinct(facts, kNamesOfAQuery)) {
      names.push_back(fact.name);
      codes.push_back(fact.code);
    }
    samples.push_back(
        document.ask(several_names(names), fmt::format("{}", fmt::join(codes, " ")), Scoring::kExact, Items::kNumbers, 1));
  }
  return samples;
}

Samples needle_multivalue(const TaskContext& context, Rng& rng, int tokens, int questions) {
  Document document("needle_multivalue", context, rng, tokens, kInstruction, all_codes("strange-mountain"));
  const int fit = document.capacity(statement("strange-mountain", std::string(kDigits, '8')), kValuesOfAName);
  const int count = std::max(1, fit / (4 * kValuesOfAName));
  const auto names = hyphenated_names(rng, count);
  const auto codes = numbers(rng, count * kValuesOfAName, kDigits);
  std::vector<size_t> order;  // which name each statement is about
  for (int i = 0; i < count * kValuesOfAName; ++i) order.push_back(i / kValuesOfAName);
  rng.shuffle(order);
  std::vector<std::vector<std::string>> told(count);
  std::vector<std::string> statements;
  for (size_t i = 0; i < order.size(); ++i) {
    told[order[i]].push_back(codes[i]);
    statements.push_back(statement(names[order[i]], codes[i]));
  }
  document.fill_scattered(statements);
  std::vector<size_t> indices(names.size());
  for (size_t i = 0; i < indices.size(); ++i) indices[i] = i;
  Samples samples;
  for (const size_t asked : rng.distinct(indices, std::min<size_t>(questions, indices.size()))) {
    samples.push_back(document.ask(all_codes(names[asked]), fmt::format("{}", fmt::join(told[asked], " ")), Scoring::kExact,
                                   Items::kNumbers, 1));
  }
  return samples;
}

}  // namespace sluice::english
