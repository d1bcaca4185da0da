// Engines on a GPU that copy text from where it stood before.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/cuda/device/engine_fixture.h"
#include "tests/support/recompute_rules.h"
#include "tests/support/segment_prompts.h"

namespace sluice::testing {
namespace {

class CudaEngineSegments : public CudaEngine {
 protected:
  std::vector<int32_t> text(int number, int tokens) const {
    std::vector<int32_t> made;
    for (int i = 0; i < tokens; ++i)
      made.push_back(static_cast<int32_t>(counter_uniform(static_cast<uint64_t>(number), static_cast<uint64_t>(i)) *
                                          model_->config().vocabulary));
    return made;
  }

  static Request prompt_of(const std::vector<std::vector<int32_t>>& parts) { return prompt_of_parts(parts, "docs"); }
  Request as(Request made, const char* rule, const ParameterValues& values = {}) const {
    made.recompute = shipped_rule(rule, model_->config().query_heads, values);
    return made;
  }

  static EngineOptions options() {
    EngineOptions options;
    options.page = 16;
    options.pages = 700;
    options.max_pass_tokens = 500;
    return options;
  }
  /// Of the tokens that were generated, beside those that computing the prompt gives.
  double distance(const RequestResult& result, Request made) {
    Engine plain(*device_, *model_, nullptr, options());
    made.segments.clear();
    made.given = result.tokens;
    return largest_distance(result, testing::run(plain, made));
  }
};

TEST_F(CudaEngineSegments, RecomputingEverythingGivesWhatComputingDoes) {
  const std::vector<std::pair<const char*, ParameterValues>> rules = {{"all", {}},
                                                                      {"sparsex", {{"share", "1"}, {"boundary", "1"}}},
                                                                      {"sparsex", {{"share", "1"}, {"boundary", "0"}}},
                                                                      {"cacheblend", {{"share", "1"}, {"boundary", "2"}}}};
  for (const auto& [rule, values] : rules) {
    Engine engine(*device_, *model_, nullptr, options());
    testing::run(engine, prompt_of({text(1, 13), text(2, 800), text(3, 5), text(4, 1337)}));
    const Request again = as(prompt_of({text(5, 130), text(4, 1337), text(6, 9), text(2, 800), text(7, 33)}), rule, values);
    const RequestResult result = testing::run(engine, again);
    EXPECT_EQ(result.copied_tokens, 800 + 1328) << rule;
    EXPECT_EQ(result.recomputed_tokens, 800 + 1328) << rule;
    // bf16 between layers, and sums in another order.
    EXPECT_LT(distance(result, again), 0.05) << rule;
  }
}

TEST_F(CudaEngineSegments, RulesComputeWhatTheySay) {
  Engine engine(*device_, *model_, nullptr, options());
  testing::run(engine, prompt_of({text(1, 13), text(2, 800), text(3, 5), text(4, 1337)}));
  const Request again = prompt_of({text(5, 130), text(4, 1337), text(6, 9), text(2, 800), text(7, 33)});
  const RequestResult none = testing::run(engine, as(again, "none"));
  EXPECT_EQ(none.copied_tokens, 800 + 1328);
  EXPECT_EQ(none.recomputed_tokens, 0);
  const double blind = distance(none, again);
  const RequestResult sparse = testing::run(engine, as(again, "sparsex", {{"share", "0.1"}, {"boundary", "1"}}));
  EXPECT_GT(sparse.recomputed_tokens, 212);
  EXPECT_LT(sparse.recomputed_tokens, 500);
  EXPECT_GT(blind, 0.1) << "the copies know nothing of their new context: more than what bf16 makes of the same";
  const RequestResult all = testing::run(engine, as(again, "all"));
  EXPECT_LT(distance(all, again), blind / 2);
}

TEST_F(CudaEngineSegments, DecodesBesideOthersAsAlone) {
  Engine engine(*device_, *model_, nullptr, options());
  testing::run(engine, prompt_of({text(1, 13), text(2, 800), text(3, 5), text(4, 1337)}));
  std::vector<Request> requests;
  for (int i = 0; i < 4; ++i) {
    Request made = prompt_of({text(10 + i, 30 + i), text(i % 2 == 0 ? 2 : 4, i % 2 == 0 ? 800 : 1337), text(20 + i, 40)});
    requests.push_back(as(std::move(made), "all"));
  }
  for (const Request& request : requests) engine.submit(request);
  std::vector<RequestResult> results = engine.run_all();
  ASSERT_EQ(results.size(), requests.size());
  std::sort(results.begin(), results.end(), [](const auto& a, const auto& b) { return a.id < b.id; });
  for (size_t i = 0; i < requests.size(); ++i) {
    EXPECT_GE(results[i].copied_tokens, 800);
    EXPECT_LT(distance(results[i], requests[i]), 0.05) << i;
  }
}

}  // namespace
}  // namespace sluice::testing
