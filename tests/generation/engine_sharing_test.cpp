// Engines of several flows that share pools: serve --share-cache.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/generation/engine_tasks.h"

namespace sluice::test {
namespace {

using namespace std::chrono_literals;
using Kind = GenerationEvent::Kind;

/// The tokens of a task that ends, and how many of its prompt's were found; nothing if it failed.
struct Answer {
  std::vector<int32_t> tokens;
  int cached = 0;
};
std::optional<Answer> answer_of(GenerationQueue& events) {
  Answer answer;
  const auto deadline = std::chrono::steady_clock::now() + 30s;
  while (std::chrono::steady_clock::now() < deadline) {
    const auto event = events.pop(50ms);
    if (!event) continue;
    if (event->kind == Kind::kFailed) return {};
    if (event->kind == Kind::kFinished) return answer;
    if (event->kind != Kind::kToken) continue;
    if (answer.tokens.empty()) answer.cached = event->cached_tokens;
    answer.tokens.push_back(event->token);
  }
  return {};
}

GenerationTask long_task(const std::string& flow, int prompt, int salt) {
  GenerationTask made = task(flow, 12);
  made.request.prompt.clear();
  for (int i = 0; i < prompt; ++i) made.request.prompt.push_back((i * (31 + salt) + i * i % 13) % 1000);
  return made;
}

/// The answer to such a task, which has to end well.
Answer ask(EngineThread& engines, const std::string& flow, int prompt) {
  const GenerationTask asked = long_task(flow, prompt, 0);
  engines.submit({asked});
  const std::optional<Answer> answer = answer_of(*asked.events);
  EXPECT_TRUE(answer) << flow;
  return answer.value_or(Answer{});
}

GenerationOptions sharing(int engines) {
  GenerationOptions options = one_engine(testing::source_path("host/models/mini").string());
  options.most_engines = engines;
  options.shares_cache = true;
  return options;
}

TEST(EngineSharing, FlowsThatShareACacheFindEachOthersPrompts) {
  GenerationMetrics metrics("mini");
  EngineThread engines(sharing(6), metrics);
  // Pages of 8 tokens, and of 16.
  for (const std::vector<std::string>& flows : {std::vector<std::string>{"quest", "nsa_topk", "h2o"}, {"", "block_topk"}}) {
    for (size_t i = 0; i < flows.size(); ++i) {
      const Answer answer = ask(engines, flows[i], 101);
      EXPECT_EQ(answer.tokens.size(), 12U);
      EXPECT_EQ(answer.cached, i == 0 ? 0 : 96) << flows[i];
    }
  }
}

// One place for flows, whose engine goes when the next one comes: what was known of prompts stays.
TEST(EngineSharing, WhatIsKnownOfPromptsOutlivesEngines) {
  GenerationMetrics metrics("mini");
  EngineThread engines(sharing(2), metrics);
  int cached = 0;
  for (const char* flow : {"quest", "nsa_topk", "h2o", "quest"}) {
    EXPECT_EQ(ask(engines, flow, 101).cached, cached) << flow;
    cached = 96;
  }
}

// More flows with fields than a pool has room for: the last ones have pools of their own.
TEST(EngineSharing, AFlowThatFindsNoRoomForItsFieldsHasAPoolOfItsOwn) {
  GenerationMetrics metrics("mini");
  GenerationOptions options = sharing(20);
  options.read_flow = [shipped = options.read_flow](const std::string&, const TraceOptions& trace) {
    return shipped("quest", trace);
  };
  EngineThread engines(options, metrics);
  std::vector<int32_t> first;
  for (int i = 0; i < 18; ++i) {
    const Answer answer = ask(engines, "quest" + std::to_string(i), 40);
    if (i == 0) first = answer.tokens;
    EXPECT_EQ(answer.tokens, first) << i;
  }
}

// Pools that hold a few of the requests at a time.
TEST(EngineSharing, EnginesThatShareACacheAllGetOn) {
  std::vector<std::vector<int32_t>> apart;
  for (const bool shares : {false, true}) {
    GenerationMetrics metrics("mini");
    GenerationOptions options = one_engine(testing::source_path("host/models/mini").string());
    options.most_engines = 4;
    options.pool_bytes = size_t{2} << 20;
    options.shares_cache = shares;
    EngineThread engines(options, metrics);
    std::vector<GenerationTask> tasks;
    for (int i = 0; i < 36; ++i) {
      const char* const flows[] = {"quest", "nsa_topk", "h2o"};
      tasks.push_back(long_task(flows[i % 3], 20 + i * 37 % 230, i % 5));
      tasks.back().caller = i % 2 == 0 ? "ada" : "bob";
      engines.submit({tasks.back()});
    }
    for (size_t i = 0; i < tasks.size(); ++i) {
      const std::optional<Answer> answer = answer_of(*tasks[i].events);
      ASSERT_TRUE(answer) << i;
      if (!shares) {
        apart.push_back(answer->tokens);
      } else {
        EXPECT_EQ(answer->tokens, apart[i]) << i;
      }
    }
  }
}

}  // namespace
}  // namespace sluice::test
