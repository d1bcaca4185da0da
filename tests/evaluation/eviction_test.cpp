// Who leaves a cache that forgets, on the CPU against the reference, among other heads, layers and requests.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "agents/evaluation/numerical.h"
#include "agents/evaluation/single_head.h"
#include "scripting/lua/trace.h"
#include "tests/support/random_flow.h"

namespace sluice::test {
namespace {

TEST(Eviction, RandomFlowsAgreeWithTheReferenceOnTheCpu) {
  const auto device = create_cpu_device({2});
  int judged = 0;
  for (uint64_t seed = 0; judged < 40; ++seed) {
    FlowGraph graph;
    try {
      graph = sluice::testing::random_eviction(seed);
    } catch (const FlowError&) {
      continue;  // a pattern that keeps more than the budget
    }
    if (graph.geometry.head_dim % 8 != 0) continue;  // the CPU attends in no other heads
    ++judged;
    EXPECT_EQ(check_against_reference(*device, graph, compile(graph).plan), std::nullopt) << "seed " << seed;
  }
}

FlowGraph evicting(const std::string& score, const std::string& options, const std::string& top = "") {
  return trace("local f = sluice.flow{name='f', page=16" + top +
                   "} function f.cache(c) c.heavy = sluice.cfill(0, {'token'}) end function f.after(q, c, mass) "
                   "local heavy = c.heavy + mass:sum('head') c.heavy:save(heavy) sluice.evict(" +
                   score + ", {budget = 64, " + options + "}) end return f",
               "f.lua");
}

TEST(Eviction, BudgetsBeyondWhatTheReferenceAffordsAreJudged) {
  const auto device = create_cpu_device({1});
  FlowGraph graph = evicting("heavy", "keep = sluice.pattern.window(20)");
  graph.eviction->budget = 1 << 30;
  EXPECT_EQ(check_against_reference(*device, graph, compile(graph).plan), std::nullopt);
}

TEST(Eviction, EveryRuleAgreesWithTheReference) {
  const auto device = create_cpu_device({1});
  for (const char* options : {"first = 4, recent = 8", "recent = 64", "first = 63", "compress = 'prompt'", "chunk = 1",
                              "chunk = 64", "first = 10, recent = 30, chunk = 20", "keep = sluice.pattern.window(20)",
                              "keep = sluice.pattern.sink(3) | sluice.pattern.window(30), compress = 'prompt', recent = 5"}) {
    for (const char* top : {"", ", prompt_mass = 5", ", prompt_mass = 1"}) {
      const FlowGraph graph = evicting("heavy", options, top);
      EXPECT_EQ(check_against_reference(*device, graph, compile(graph).plan), std::nullopt) << options << top;
    }
  }
}

/// Heavy hitters of one KV head, as a map from each token that is there to its score.
class HeavyHitters {
 public:
  HeavyHitters(int dim, int group, int budget, int first, int recent)
      : dim_(static_cast<size_t>(dim)), group_(static_cast<size_t>(group)), budget_(budget), first_(first), recent_(recent) {}

  /// Who leaves before the token at `position` comes; -1: nobody. `gap`: how far the next score is from the lowest.
  int leaver(int position, double& gap) const {
    if (static_cast<int>(scores_.size()) < budget_) return -1;
    int lowest = -1;
    gap = INFINITY;
    for (const auto& [token, score] : scores_) {
      if (token < first_ || token > position - recent_) continue;
      if (lowest < 0 || score < scores_.at(lowest)) {
        if (lowest >= 0) gap = std::min(gap, scores_.at(lowest) - score);
        lowest = token;
      } else {
        gap = std::min(gap, score - scores_.at(lowest));
      }
    }
    return lowest;
  }
  void leave(int token) { scores_.erase(token); }
  /// A token comes, and asks.
  void step(int position, const std::vector<float>& keys, const std::vector<float>& query) {
    scores_[position] = 0;
    for (size_t head = 0; head < group_; ++head) {
      double sum = 0;
      std::map<int, double> weights;
      for (const auto& [token, score] : scores_) {
        double product = 0;
        for (size_t d = 0; d < dim_; ++d)
          product += double{query[head * dim_ + d]} * double{keys[static_cast<size_t>(token) * dim_ + d]};
        sum += weights[token] = std::exp(product / std::sqrt(static_cast<double>(dim_)));
      }
      for (auto& [token, score] : scores_) score += weights[token] / sum;
    }
  }
  std::set<int> tokens() const {
    std::set<int> tokens;
    for (const auto& [token, score] : scores_) tokens.insert(token);
    return tokens;
  }

 private:
  size_t dim_, group_;
  int budget_, first_, recent_;
  std::map<int, double> scores_;
};

TEST(Eviction, TheSameTokensLeaveOver2000Steps) {
  constexpr int kSteps = 2000;
  constexpr int kBudget = 48;
  constexpr size_t kDim = 16;
  TraceOptions traced;
  traced.head_dim = static_cast<int>(kDim);
  traced.group = 2;
  const FlowGraph graph = trace(R"(
    local flow = sluice.flow { name = "h2o", page = 8, kv = "f32" }
    function flow.cache(c) c.heavy = sluice.cfill(0, { "token" }) end
    function flow.after(q, c, mass)
      local heavy = c.heavy + mass:sum("head")
      c.heavy:save(heavy)
      sluice.evict(heavy, { budget = 48, first = 2, recent = 10 })
    end
    return flow)",
                                "h2o.lua", traced);
  const Plan plan = compile(graph).plan;
  const auto device = create_cpu_device({1});
  SingleHead head(*device, plan, kSteps, 1);
  HeavyHitters model(static_cast<int>(kDim), 2, kBudget, 2, 10);
  std::mt19937_64 random(11);
  std::normal_distribution<float> normal;
  std::vector<float> keys;
  int close = 0;
  for (int step = 0; step < kSteps; ++step) {
    std::vector<float> key(kDim), value(kDim), query(2 * kDim);
    for (auto* numbers : {&key, &query}) {
      for (float& number : *numbers) number = normal(random);
    }
    value[0] = static_cast<float>(step);  // says whose it is
    keys.insert(keys.end(), key.begin(), key.end());
    head.decode(key, value, query);
    std::set<int> there;
    const int slots = std::min(step + 1, kBudget);
    const std::vector<float> values = head.values_in(slots);
    for (size_t slot = 0; slot < static_cast<size_t>(slots); ++slot) there.insert(static_cast<int>(values[slot * kDim]));
    ASSERT_EQ(static_cast<int>(there.size()), slots) << step;
    double gap = INFINITY;
    int leaver = model.leaver(step, gap);
    if (gap < 1e-4 && leaver >= 0 && there.count(leaver) > 0) {  // float32 may see it otherwise
      ++close;
      for (const int token : model.tokens()) leaver = there.count(token) == 0 ? token : leaver;
    }
    if (leaver >= 0) model.leave(leaver);
    model.step(step, keys, query);
    ASSERT_EQ(there, model.tokens()) << step;
  }
  EXPECT_LT(close, 20);
}

// A device that lets others leave is found.
TEST(Eviction, OthersAreFound) {
  const auto device = create_cpu_device({1});
  const FlowGraph wanted = evicting("heavy", "first = 4, recent = 8, chunk = 20");
  EXPECT_EQ(check_against_reference(*device, wanted, compile(wanted).plan), std::nullopt);
  for (const auto& [score, options] : {std::pair("-heavy", "first = 4, recent = 8, chunk = 20"),
                                       {"heavy", "first = 3, recent = 8, chunk = 20"},
                                       {"heavy", "first = 4, recent = 2, chunk = 20"},
                                       {"mass:sum('head')", "first = 4, recent = 8, chunk = 20"}}) {
    EXPECT_TRUE(check_against_reference(*device, wanted, compile(evicting(score, options)).plan).has_value()) << score << options;
  }
}

}  // namespace
}  // namespace sluice::test
