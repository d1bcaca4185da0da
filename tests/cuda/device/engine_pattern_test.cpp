// Flows that are a pattern on the GPU: slots beside masks over all tokens, replayed steps, and memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "agents/bench/operation_profile.h"
#include "scripting/lua/trace.h"
#include "tests/cuda/device/engine_fixture.h"
#include "tests/support/golden.h"
#include "tests/support/temporary_directory.h"

namespace sluice::testing {
namespace {

class CudaEnginePatterns : public CudaEngine {
 protected:
  Plan plan(const std::string& pattern) const {
    return compile(trace("local p = sluice.pattern\nlocal flow = sluice.flow{name = \"pattern\"}\nflow.pattern = " + pattern +
                             "\nreturn flow",
                         "pattern.lua", trace_options(model_->config())))
        .plan;
  }

  std::map<uint64_t, RequestResult> run_with(const Plan& plan, EngineOptions options) {
    options.max_batch = 4;
    options.max_pass_tokens = 300;
    Engine engine(*device_, *model_, &plan, options);
    for (const Request& request : workload()) engine.submit(request);
    std::map<uint64_t, RequestResult> results;
    for (RequestResult& result : engine.run_all()) results[result.id] = std::move(result);
    EXPECT_EQ(engine.stats().pages_free, engine.stats().pages_total) << "pages leaked";
    return results;
  }

  /// Root of the mean square of the difference of the prompt's logits, over that of `wanted`.
  static double distance(const RequestResult& got, const RequestResult& wanted, size_t numbers) {
    double apart = 0;
    double all = 0;
    for (size_t i = 0; i < numbers; ++i) {
      apart += std::pow(double{got.logits[i]} - wanted.logits[i], 2);
      all += std::pow(double{wanted.logits[i]}, 2);
    }
    return std::sqrt(apart / all);
  }
};

TEST_F(CudaEnginePatterns, SlotsGiveWhatMasksOverAllTokensGive) {
  const auto requests = workload();
  const auto columns = static_cast<size_t>(model_->config().vocabulary);
  const auto dense = run(*device_, *model_, nullptr, requests);
  for (const char* pattern : {"p.sink(4) | p.window(200)", "p.strided(64, 48)", "p.fixed(64)", "p.blocks(128, 2)",
                              "p.dilated(64, 3)", "p.by_head{p.window(200), p.strided(20, 48), p.sink(300) | p.window(9)}",
                              "{[0] = \"full\", [3] = p.window(17), rest = p.sink(32) | p.window(333)}"}) {
    const Plan flow = plan(pattern);
    EngineOptions options;
    options.pages = 2000;
    const auto got = run_with(flow, options);
    options.forget_unread = false;
    const auto wanted = run_with(flow, options);
    ASSERT_EQ(got.size(), wanted.size());
    for (const auto& [id, result] : got) {
      const Request& asked = requests[id - 1];
      if (!asked.want_logits) continue;
      const size_t numbers = asked.prompt.size() * columns;
      EXPECT_LT(distance(result, wanted.at(id), numbers), 0.02) << pattern << ", request " << id;
      if (asked.prompt.size() > 900) EXPECT_GT(distance(result, dense.at(id), numbers), 0.05) << pattern << ": the mask is seen";
    }
  }
}

// The newest page and a window, or the first and the last pages of those that a pattern shows, are patterns themselves.
TEST_F(CudaEnginePatterns, StandBesideAndAroundASelectionOfPages) {
  struct Same {
    const char* flow;  // what stands between the flow's head and its end
    const char* pattern;
    const char* prefill;
  };
  const Same cases[] = {
      {"function flow.index(q, c) return sluice.union(sluice.window{last = 1}, p.window(200)) end", "p.window(200)", "dense"},
      {"function flow.index(q, c) return sluice.union(sluice.window{last = 1}, p.window(16), p.strided(20, 48)) end",
       "p.strided(20, 48)", "dense"},
      {"flow.pattern = p.sink(4) | p.window(200) function flow.index(q, c) return sluice.window{first = 9, last = 9} end",
       "p.sink(4) | p.window(200)", "pattern"},
      {"flow.pattern = p.strided(64, 48) function flow.index(q, c) return sluice.window{first = 1000} end", "p.strided(64, 48)",
       "dense"},
      {"flow.pattern = p.by_head{p.window(200), p.sink(4) | p.dilated(30, 9), p.window(1)} function flow.index(q, c) return "
       "sluice.window{first = 1000} end",
       "p.by_head{p.window(200), p.sink(4) | p.dilated(30, 9), p.window(1)}", "pattern"},
      {"flow.pattern = {[2] = \"full\", rest = p.window(300)} function flow.index(q, c) return "
       "sluice.union(sluice.window{first = 1000}, p.sink(9)) end",
       "{[2] = \"full\", rest = p.window(300)}", "pattern"},
  };
  for (const Same& same : cases) {
    SCOPED_TRACE(same.flow);
    const auto compiled = [&](const std::string& body) {
      return compile(trace("local p = sluice.pattern\nlocal flow = sluice.flow{name = \"same\", prefill = \"" +
                               std::string(same.prefill) + "\"}\n" + body + "\nreturn flow",
                           "same.lua", trace_options(model_->config())))
          .plan;
    };
    const bool is_united = std::string(same.flow).find("flow.pattern") == std::string::npos;
    const Plan selecting = is_united ? compile(trace("local p = sluice.pattern\nlocal flow = sluice.flow{name = \"same\"}\n" +
                                                         std::string(same.flow) + "\nreturn flow",
                                                     "same.lua", trace_options(model_->config())))
                                           .plan
                                     : compiled(same.flow);
    const Plan pattern = compiled("flow.pattern = " + std::string(same.pattern));
    EngineOptions options;
    options.pages = 2000;
    options.forget_unread = false;
    const auto got = run_with(selecting, options);
    const auto wanted = run_with(pattern, options);
    for (const auto& [id, result] : got) {
      EXPECT_EQ(result.tokens, wanted.at(id).tokens) << "request " << id;
      if (result.tokens == wanted.at(id).tokens && !result.logits.empty())
        EXPECT_LT(distance(result, wanted.at(id), result.logits.size()), 0.01) << "request " << id;
    }
    OperationProfile one_by_one(*device_);
    one_by_one.start();
    const auto by_one = run_with(selecting, options);
    one_by_one.stop();
    for (const auto& [id, result] : got) EXPECT_EQ(result.logits, by_one.at(id).logits) << "replayed, request " << id;
  }
}

TEST_F(CudaEnginePatterns, ReplayedStepsGiveTheSameBits) {
  for (const char* pattern : {"p.sink(4) | p.window(200)", "{[0] = \"full\", rest = p.fixed(64)}"}) {
    const Plan flow = plan(pattern);
    EngineOptions options;
    options.pages = 2000;
    OperationProfile one_by_one(*device_);
    one_by_one.start();
    const auto wanted = run_with(flow, options);
    one_by_one.stop();
    const auto got = run_with(flow, options);
    for (const auto& [id, result] : got) {
      EXPECT_EQ(result.tokens, wanted.at(id).tokens) << pattern << ", request " << id;
      EXPECT_EQ(result.logits, wanted.at(id).logits) << pattern << ", request " << id;
    }
  }
}

// 1056 tokens live of each: 66 pages. The pass that computes prompts has 512 rows, which take 32 pages beside them.
TEST_F(CudaEnginePatterns, ThirtyTwoLongSequencesRunInTheMemoryOfWhatLives) {
  constexpr int kSequences = 32;
  constexpr int kTokens = 131072;
  const TemporaryDirectory directory;
  const std::filesystem::path mini = source_path("host/models/mini");
  for (const auto& file : std::filesystem::directory_iterator(mini)) {
    if (file.path().filename() != "config.json")
      std::filesystem::create_symlink(file.path(), std::filesystem::path(directory.path()) / file.path().filename());
  }
  nlohmann::json config = nlohmann::json::parse(read_text(mini / "config.json"));
  config["max_position_embeddings"] = 2 * kTokens;
  std::ofstream(std::filesystem::path(directory.path()) / "config.json") << config;
  const auto model = load_model(directory.path(), *device_);

  const Plan flow = plan("p.sink(32) | p.window(1024)");
  EngineOptions options;
  options.pages = kSequences * 66 + 32;
  options.max_batch = kSequences;
  options.max_pass_tokens = 512;
  Engine engine(*device_, *model, &flow, options);
  EXPECT_EQ(engine.stats().pages_total, options.pages);
  for (int i = 0; i < kSequences; ++i) {
    Request request;
    for (int token = 0; token < kTokens; ++token) {
      request.prompt.push_back(static_cast<int32_t>(counter_uniform(static_cast<uint64_t>(i), static_cast<uint64_t>(token)) *
                                                    config["vocab_size"].get<int>()));
    }
    request.max_tokens = 100;
    request.ignore_eos = true;
    engine.submit(std::move(request));
  }
  int most_used = 0;
  while (engine.step()) {
    const EngineStats stats = engine.stats();
    most_used = std::max(most_used, stats.pages_total - stats.pages_free);
  }
  EXPECT_EQ(engine.take_finished().size(), static_cast<size_t>(kSequences));
  EXPECT_EQ(engine.stats().preemptions, 0U);
  EXPECT_EQ(most_used, kSequences * 66) << "between passes";
  EXPECT_EQ(engine.stats().pages_free, options.pages) << "pages leaked";
}

// Tokens are given, since rounding parts those of random prompts after a few.
TEST_F(CudaEnginePatterns, TakesSnapshotsToSlots) {
  for (const char* pattern :
       {"p.sink(4) | p.window(200)", "p.by_head{p.window(200), p.sink(4) | p.window(90), p.strided(30, 48)}"}) {
    SCOPED_TRACE(pattern);
    const Plan flow = plan(pattern);
    EngineOptions options;
    options.pages = 2000;
    options.forget_unread = false;
    Request request = workload()[2];
    request.want_logits = false;
    request.likely = 0;
    Engine keeps(*device_, *model_, &flow, options);
    request.want_snapshot = true;
    keeps.submit(request);
    const auto wanted = keeps.run_all();
    options.forget_unread = true;
    Engine slots(*device_, *model_, &flow, options);
    request.want_snapshot = false;
    request.snapshot = wanted[0].snapshot;
    request.given = wanted[0].tokens;
    slots.submit(request);
    const auto got = slots.run_all();
    ASSERT_EQ(got[0].tokens, wanted[0].tokens);
    for (size_t i = 0; i < got[0].tokens.size(); ++i) {
      EXPECT_NEAR(got[0].probabilities.of_tokens[i], wanted[0].probabilities.of_tokens[i], 0.3) << "token " << i;
    }
  }
}

}  // namespace
}  // namespace sluice::testing
