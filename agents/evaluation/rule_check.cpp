#include "agents/evaluation/rule_check.h"

#include <fmt/format.h>

#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/device/recompute_rule.h"
#include "kernels/reference/judge.h"
#include "kernels/reference/oracle.h"
#include "scripting/graph/selections.h"

namespace sluice {

std::optional<std::string> check_rule_against_reference(const Recompute& rule) {
  if (rule.kind != Recompute::Kind::kSelected) return std::nullopt;
  const auto compiled = make_recompute_rule(std::make_shared<const Recompute>(rule));
  const FlowGraph& graph = rule.graph;
  const int page = graph.geometry.page;
  std::mt19937 random(1);  // NOLINT: the same facts every time
  std::normal_distribution<float> number(0, 3);
  constexpr int kRounds = 3;
  constexpr uint64_t kSeed = 7;
  for (const int blocks : {1, 2, 7, 40, 150}) {
    for (int round = 0; round < kRounds; ++round) {
      std::map<CopyFact, std::vector<float>> facts;
      oracle::States states;
      for (const State& state : graph.states) {
        std::vector<float>& numbers = facts[find_copy_fact(state.name)->fact];
        oracle::Tensor tensor{state.shape, {}};
        tensor.shape.front().extent = blocks;
        const CopyFact fact = find_copy_fact(state.name)->fact;
        for (int64_t left = int64_t{blocks} * elements_per_page(state.shape); left > 0; --left) {
          numbers.push_back(fact == CopyFact::kLooks ? static_cast<float>(random() % 2) : number(random));
          if (fact == CopyFact::kFromNew && random() % 8 == 0) numbers.back() = std::numeric_limits<float>::infinity();
          tensor.values.push_back({numbers.back(), 0});
        }
        states[state.name] = std::move(tensor);
      }
      const std::vector<float> query(static_cast<size_t>(graph.geometry.group) * static_cast<size_t>(graph.geometry.head_dim));
      const oracle::Row row{.query = query, .keys = {}, .values = {}, .tokens = blocks * page, .seed = kSeed};
      const oracle::Result wanted = oracle::run(graph, row, states);
      if (oracle::leaves_open(graph, wanted)) continue;
      const std::vector<int32_t> tokens =
          is_of_tokens(graph, graph.selection()) ? wanted.selected : oracle::tokens_of_pages(graph, wanted.selected, row.tokens);
      const auto fill = [&](CopyFact fact, std::span<float> to) {
        const std::vector<float>& numbers = facts.at(fact);
        const auto summed = static_cast<ptrdiff_t>(numbers.size() / to.size());  // heads, where the rule wants sums
        for (size_t i = 0; i < to.size(); ++i) {
          const auto first = numbers.begin() + static_cast<ptrdiff_t>(i) * summed;
          to[i] = std::accumulate(first, first + summed, 0.0F);
        }
      };
      if (compiled->select(blocks, kSeed, fill) == tokens) continue;
      return fmt::format("flow.recompute chooses other tokens of {} blocks than the reference", blocks);
    }
  }
  return std::nullopt;
}

}  // namespace sluice
