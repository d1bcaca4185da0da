#include <algorithm>

#include "agents/tasks/generators.h"
#include "agents/tasks/mini_document.h"

namespace sluice::mini {
namespace {

constexpr int kChains = 5;     // docs/TASKS.md
constexpr int kVariables = 4;  // of a chain: three hops

}  // namespace

Samples variable_tracking(const TaskContext& context, Rng& rng, int tokens, int questions) {
  Document document("variable_tracking", context, rng, tokens, 3, kVariables);
  const int count = std::clamp(document.size() / kVariables, 1, kChains);
  const Words keys = document.keys(count * kVariables);
  struct Chain {
    Words names;  // the first has a value
    Words value;
  };
  std::vector<Chain> chains;
  std::vector<Words> statements;
  for (int i = 0; i < count; ++i) {
    Chain chain{{keys.begin() + i * kVariables, keys.begin() + (i + 1) * kVariables}, document.values(2)};
    statements.push_back({"var", chain.names[0], "=", chain.value[0], chain.value[1], document.filler(), document.filler(), ";"});
    for (int hop = 1; hop < kVariables; ++hop) {
      statements.push_back(
          {"var", chain.names[hop], "<-", chain.names[hop - 1], document.filler(), document.filler(), document.filler(), ";"});
    }
    chains.push_back(std::move(chain));
  }
  document.scatter_shuffled(std::move(statements));
  document.distract(Kind::kVariable);
  Samples samples;
  for (const Chain& chain : rng.distinct(chains, std::min<size_t>(questions, chains.size()))) {
    Words answer(chain.names.rbegin() + 1, chain.names.rend());
    answer.insert(answer.end(), chain.value.begin(), chain.value.end());
    samples.push_back(document.ask({"trace", chain.names.back(), "="}, answer, 1));
  }
  return samples;
}

}  // namespace sluice::mini
