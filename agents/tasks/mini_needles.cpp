#include <algorithm>

#include "agents/tasks/generators.h"
#include "agents/tasks/mini_document.h"

namespace sluice::mini {
namespace {

// Few that may be asked for: hay then shares words with each of them in more pages than a flow selects (docs/TASKS.md).
constexpr int kFacts = 12;
constexpr int kAnsweredFact = 7;  // words: K = v w x y ;
constexpr int kMultiValues = 8;   // keys of several values
constexpr int kValuesOfAKey = 4;

struct Fact {
  std::string key;
  Words value;
};

std::vector<Fact> write_facts(Document& document, int count) {
  std::vector<Fact> facts;
  std::vector<Words> statements;
  for (const std::string& key : document.keys(count)) {
    const Words value = document.values(4);
    statements.push_back({"key", key, "=", value[0], value[1], value[2], value[3], ";"});
    facts.push_back({key, value});
  }
  document.scatter(statements);
  document.distract(Kind::kFact);
  return facts;
}

void append(Words& words, const Words& more) { words.insert(words.end(), more.begin(), more.end()); }

}  // namespace

Samples needle_multiquery(const TaskContext& context, Rng& rng, int tokens, int questions) {
  Document document("needle_multiquery", context, rng, tokens, 6, 4);
  const std::vector<Fact> facts = write_facts(document, std::min(kFacts, document.size()));
  Samples samples;
  for (int i = 0; i < questions; ++i) {
    Words question = {"each"};
    Words answer;
    for (const Fact& fact : rng.distinct(facts, 4)) {
      question.push_back(fact.key);
      if (!answer.empty()) answer.push_back(";");
      append(answer, {fact.key, "="});
      append(answer, fact.value);
    }
    question.push_back(":");
    samples.push_back(document.ask(question, answer, kAnsweredFact));
  }
  return samples;
}

Samples needle_multivalue(const TaskContext& context, Rng& rng, int tokens, int questions) {
  Document document("needle_multivalue", context, rng, tokens, 3, kValuesOfAKey);
  const int count = std::clamp(document.size() / kValuesOfAKey, 1, kMultiValues);
  // Which key each `also` statement names, in the order of the document; its values come in that order, too.
  std::vector<size_t> order;
  for (int i = 0; i < count * kValuesOfAKey; ++i) order.push_back(i / kValuesOfAKey);
  rng.shuffle(order);
  std::vector<Fact> facts;
  for (const std::string& key : document.keys(count)) {
    facts.push_back({key, rng.distinct(context.mini->values, kValuesOfAKey)});
  }
  std::vector<Words> statements;
  std::vector<size_t> told(facts.size(), 0);
  for (const size_t index : order) {
    const Fact& fact = facts[index];
    statements.push_back(
        {"also", fact.key, "=", fact.value[told[index]++], document.filler(), document.filler(), document.filler(), ";"});
  }
  document.scatter(statements);
  document.distract(Kind::kAlso);
  Samples samples;
  for (const Fact& fact : rng.distinct(facts, std::min<size_t>(questions, facts.size()))) {
    samples.push_back(document.ask({"all", fact.key, "="}, fact.value, 1));
  }
  return samples;
}

}  // namespace sluice::mini
