#pragma once

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "agents/evaluation/single_head.h"
#include "scripting/lua/trace.h"

namespace sluice::testing {

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

/// Normal ones that bfloat16 holds exactly.
inline std::vector<float> bf16_numbers(size_t count, std::mt19937_64& random) {
  std::normal_distribution<float> normal;
  std::vector<float> drawn(count);
  for (float& number : drawn) number = std::bit_cast<float>(std::bit_cast<uint32_t>(normal(random)) & 0xffff0000U);
  return drawn;
}

inline FlowGraph heavy_hitters(const std::string& kv, int head_dim, int group) {
  TraceOptions traced;
  traced.head_dim = head_dim;
  traced.group = group;
  return trace("local flow = sluice.flow { name = 'h2o', page = 8, kv = '" + kv + R"(' }
    function flow.cache(c) c.heavy = sluice.cfill(0, { "token" }) end
    function flow.after(q, c, mass)
      local heavy = c.heavy + mass:sum("head")
      c.heavy:save(heavy)
      sluice.evict(heavy, { budget = 48, first = 2, recent = 10 })
    end
    return flow)",
               "h2o.lua", traced);
}

/// 2,000 steps of a flow that evicts heavy hitters, beside a map from each token that is there to its score: the same tokens
/// leave.
inline void expect_same_victims(Device& device, const std::string& kv, int head_dim) {
  constexpr int kSteps = 2000;
  constexpr int kBudget = 48;
  constexpr int kFirst = 2;
  constexpr int kRecent = 10;
  constexpr int kGroup = 2;
  const Plan plan = compile(heavy_hitters(kv, head_dim, kGroup)).plan;
  const auto dim = static_cast<size_t>(head_dim);
  SingleHead head(device, plan, kSteps, 1);
  HeavyHitters model(head_dim, kGroup, kBudget, kFirst, kRecent);
  std::mt19937_64 random(11);
  std::vector<float> keys;
  int close = 0;
  for (int step = 0; step < kSteps; ++step) {
    const std::vector<float> key = bf16_numbers(dim, random);
    const std::vector<float> query = bf16_numbers(kGroup * dim, random);
    std::vector<float> value(dim);
    value[0] = static_cast<float>(step % 128);  // these two say whose it is
    value[1] = static_cast<float>(step / 128);
    keys.insert(keys.end(), key.begin(), key.end());
    head.decode(key, value, query);
    std::set<int> there;
    const int slots = std::min(step + 1, kBudget);
    const std::vector<float> values = head.values_in(slots);
    for (size_t slot = 0; slot < static_cast<size_t>(slots); ++slot)
      there.insert(static_cast<int>(values[slot * dim]) + 128 * static_cast<int>(values[slot * dim + 1]));
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

}  // namespace sluice::testing
