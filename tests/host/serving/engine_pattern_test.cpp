// Flows that are a pattern: slots, masks, chunks of prompts, preemption and memory, against a model in float64 with that mask.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "scripting/base/error.h"
#include "scripting/pattern/text.h"
#include "tests/host/serving/engine_pattern_fixture.h"
#include "tests/scripting/pattern/boolean_matrix.h"

namespace sluice {
namespace {

using testing::EnginePatterns;

TEST_F(EnginePatterns, GiveTheLogitsOfAMaskedModel) {
  for (const char* pattern :
       {"p.sink(4) | p.window(20)", "p.window(1)", "p.dilated(16, 3)", "p.blocks(32, 2)", "p.strided(24, 16)", "p.fixed(16)",
        "p.causal()", "~p.window(10)", "p.rect{size = {8, 4}} >> p.diag{size = 3}", "p.rect{at = {20, 0}}",
        "{[0] = p.window(30), [1] = \"full\", rest = p.sink(2) | p.window(9)}", "{[-1] = p.dilated(9, 2)}",
        "p.by_head{p.window(20), p.sink(4) | p.window(3)}", "p.sink(2) | p.by_head{p.strided(4, 16), p.window(1), p.fixed(16)}",
        "{[1] = p.by_head{p.causal(), p.window(7)}, rest = ~p.by_head{p.window(10), p.sink(50)}}"}) {
    SCOPED_TRACE(pattern);
    expect_logits(plan(pattern), options(120), {1, 19, 95, 210}, 30);
  }
}

TEST_F(EnginePatterns, LeavePromptsDenseWhereTheFlowSaysSo) {
  for (const char* pattern :
       {"p.sink(4) | p.window(20)", "p.strided(5, 16)", "{[2] = p.fixed(16), [0] = \"full\", rest = p.window(9)}"}) {
    for (const int prompt : {1, 2, 33, 210}) {
      SCOPED_TRACE(fmt::format("{}, a prompt of {}", pattern, prompt));
      const Plan dense = plan(pattern, ", prefill = \"dense\"");
      const auto under_pattern = tiny_.sees;
      // Its last token is a decode step.
      tiny_.sees = [&](int layer, int head, int position, int seen) {
        return position < prompt - 1 || under_pattern(layer, head, position, seen);
      };
      expect_logits(dense, options(120), {prompt}, 30);
      expect_logits(dense, options(25), {prompt, prompt, prompt}, 40);  // which take turns
    }
  }
}

TEST_F(EnginePatterns, LeavePromptsToTheModelsOwnWindowsWhereTheFlowSaysSo) {
  constexpr int kWindow = 40;
  for (const char* pattern : {"p.sink(4) | p.window(20)", "{[2] = p.fixed(16), rest = p.window(9)}", "p.strided(30, 7)",
                              "p.by_head{p.window(20), p.dilated(9, 5)}"}) {
    for (const int prompt : {30, 210}) {
      SCOPED_TRACE(fmt::format("{}, a prompt of {}", pattern, prompt));
      const Plan dense = plan(pattern, ", prefill = \"dense\"");
      const auto under_pattern = tiny_.sees;
      tiny_.sees = [&](int layer, int head, int position, int seen) {
        if (layer % 2 == 1 && position - seen >= kWindow) return false;
        return position < prompt - 1 || under_pattern(layer, head, position, seen);
      };
      EngineOptions windows = options(120);
      windows.windows = {{{1, 3}, kWindow}};
      expect_logits(dense, windows, {prompt}, 60);
    }
  }
}

TEST_F(EnginePatterns, GiveTheSameWhereAllTokensAreKept) {
  for (const char* pattern : {"p.sink(4) | p.window(20)", "{[2] = p.fixed(16), rest = p.strided(24, 16)}",
                              "p.by_head{p.window(20), p.dilated(9, 5)}"}) {
    SCOPED_TRACE(pattern);
    EngineOptions keeps = options(120);
    keeps.forget_unread = false;
    expect_logits(plan(pattern), keeps, {1, 19, 95, 210}, 30);
  }
}

TEST_F(EnginePatterns, AnyExpressionIsRunAsItIsWritten) {
  std::mt19937 random(7);
  int run = 0;
  for (int i = 0; i < 60; ++i) {
    std::string pattern = to_text(test::random_pattern(random, 5));
    if (i % 2 == 1) pattern = "p.by_head{" + pattern + ", " + to_text(test::random_pattern(random, 5)) + "}";
    const std::string expression = std::string("(function() local rect, diag, sink, window, dilated, causal = p.rect, p.diag, ") +
                                   "p.sink, p.window, p.dilated, p.causal return " + pattern + " end)()";
    SCOPED_TRACE(pattern);
    try {
      expect_logits(plan(expression), options(60), {70}, 20);
      ++run;
    } catch (const FlowError& error) {
      EXPECT_NE(error.message().find("no query sees"), std::string::npos) << error.what();
    }
  }
  EXPECT_GT(run, 50);
}

TEST_F(EnginePatterns, RunInTheMemoryOfWhatLives) {
  // 36 tokens live, three pages of 16; a pool of 16 pages holds four sequences of any length, and some pages for rows of a pass.
  const Plan flow = plan("p.sink(4) | p.window(32)");
  Engine engine(*device_, *model_, &flow, options(16));
  std::vector<Request> requests;
  for (const int prompt : {700, 40, 1500, 333, 90, 1}) {
    requests.push_back(request(prompt, 40, prompt));
    engine.submit(requests.back());
  }
  int least = 16;
  while (engine.step()) least = std::min(least, engine.stats().pages_free);
  EXPECT_LE(least, 4);
  for (const RequestResult& result : engine.take_finished()) {
    const Request& asked = requests[result.id - 1];
    std::vector<int> tokens(asked.prompt.begin(), asked.prompt.end());
    tokens.insert(tokens.end(), result.tokens.begin(), result.tokens.end());
    const std::vector<double> logits = tiny_.logits(tokens);
    for (size_t i = 0; i < result.tokens.size(); ++i) {
      const auto row =
          logits.begin() + static_cast<ptrdiff_t>((asked.prompt.size() + i - 1) * static_cast<size_t>(tiny_.vocabulary));
      EXPECT_LT(*std::max_element(row, row + tiny_.vocabulary) - row[result.tokens[i]], 1e-3) << "token " << i;
    }
  }
  EXPECT_EQ(engine.stats().pages_free, 16) << "pages leaked";
}

TEST_F(EnginePatterns, PromptsMayBeFarLongerThanWhatIsKept) {
  // Pages of slots are fewer than those of the prompt's tokens, and nobody else finds them.
  expect_logits(plan("p.window(16)"), options(12), {1100}, 4);
}

TEST_F(EnginePatterns, WhatNobodySeesHasNoSay) {
  const Plan flow = plan("p.sink(3) | p.window(20)");
  EngineOptions few = options(10);
  Engine engine(*device_, *model_, &flow, few);
  for (int round = 0; round < 3; ++round) {
    const Request asks = [&] {
      Request made = request(120, 20, round);
      made.want_logits = true;
      return made;
    }();
    engine.submit(asks);
    const auto results = engine.run_all();
    EXPECT_LT(error_of(asks, results[0]), 2e-3);
  }
}

TEST_F(EnginePatterns, OfHeadsLieWithinTheModelsOwnWindows) {
  constexpr int kWindow = 40;
  const Plan flow = plan("p.by_head{p.strided(30, 7), p.sink(60) | p.window(5)}");
  const auto under_pattern = tiny_.sees;
  tiny_.sees = [&](int layer, int head, int position, int seen) {
    return (layer % 2 == 0 || position - seen < kWindow) && under_pattern(layer, head, position, seen);
  };
  EngineOptions windows = options(120);
  windows.windows = {{{1, 3}, kWindow}};
  expect_logits(flow, windows, {1, 30, 210}, 60);
}

// Of a block of 64 tokens each head reads 16: two pages in slots of its own, where both together would take four.
TEST_F(EnginePatterns, OfHeadsKeepWhatEachReads) {
  const Plan flow =
      plan("p.blocks(64, 1) & p.by_head{p.rect{stride = {1, 4}}, p.rect{stride = {1, 4}, at = {0, 1}}}", ", page = 8");
  Engine engine(*device_, *model_, &flow, options(1000));
  std::vector<Request> requests;
  for (const int prompt : {700, 40, 333, 90}) {
    requests.push_back(request(prompt, 80, prompt));
    requests.back().want_logits = true;
    engine.submit(requests.back());
  }
  for (const RequestResult& result : engine.run_all()) EXPECT_LT(error_of(requests[result.id - 1], result), 2e-3);
  EXPECT_EQ(engine.stats().preemptions, 0U);
  EXPECT_EQ(engine.stats().pages_total, 4 * (3 + 1) + 12) << "as many as a batch has at most: 16 tokens, and the newest";
  Engine smallest(*device_, *model_, &flow, options(3));
  smallest.submit(requests[0]);
  EXPECT_LT(error_of(requests[0], smallest.run_all().at(0)), 2e-3);
}

TEST_F(EnginePatterns, PreemptedRequestsAreReplayed) {
  // Everything lives, but for every other token of half of the layers.
  const Plan flow = plan("{[0] = p.dilated(500, 2), [2] = p.by_head{p.dilated(500, 2), p.dilated(100, 6)}}");
  Engine engine(*device_, *model_, &flow, options(40));
  std::vector<Request> requests;
  for (int i = 0; i < 6; ++i) {
    requests.push_back(request(90 + 30 * i, 60, i));
    requests.back().want_logits = true;
    engine.submit(requests.back());
    engine.step();
  }
  for (const RequestResult& result : engine.run_all()) EXPECT_LT(error_of(requests[result.id - 1], result), 2e-3);
  EXPECT_GT(engine.stats().preemptions, 0U);
}

TEST_F(EnginePatterns, TakeSnapshotsToTheirSlots) {
  for (const char* pattern : {"p.sink(4) | p.window(20)", "{[0] = \"full\", [1] = p.fixed(16), rest = p.dilated(9, 4)}",
                              "p.by_head{p.window(20), p.fixed(16)}"}) {
    SCOPED_TRACE(pattern);
    const Plan flow = plan(pattern);
    EngineOptions keeps = options(60);
    keeps.forget_unread = false;
    Engine first(*device_, *model_, &flow, keeps);
    Request asks = request(150, 40, 3);
    asks.want_snapshot = true;
    first.submit(asks);
    const std::vector<RequestResult> wanted = first.run_all();
    for (const int given : {149, 100}) {  // with all of the prompt, and with some of it
      Engine second(*device_, *model_, &flow, options(60));
      Request again = request(150, 40, 3);
      again.snapshot = wanted[0].snapshot;
      if (given < 149) again.prompt.resize(static_cast<size_t>(given) + 1);
      second.submit(again);
      const std::vector<RequestResult> got = second.run_all();
      EXPECT_EQ(second.stats().prefill_tokens, 0U);
      Engine third(*device_, *model_, &flow, options(60));
      again.snapshot = nullptr;
      third.submit(again);
      EXPECT_EQ(got[0].tokens, third.run_all()[0].tokens);
    }
  }
}

TEST_F(EnginePatterns, RefuseWhatTheyCannotDo) {
  const Plan flow = plan("p.window(16)");
  Engine engine(*device_, *model_, &flow, options(40));
  Request asks = request(20, 4, 1);
  asks.want_snapshot = true;
  EXPECT_THROW(engine.submit(asks), InputError);
  EXPECT_THROW(plan("p.window(0)"), FlowError);
  EXPECT_THROW(plan("p.diag{offset = -10, size = 5}"), FlowError) << "beyond the diagonal nobody sees anything";
  EXPECT_THROW(plan("{[9] = p.window(4)}"), FlowError);
  EXPECT_THROW(plan("{[0] = p.window(4)}", ", layers = {[0] = \"full\"}"), FlowError);
  EXPECT_THROW(plan("{[0] = p.window(4), [-4] = p.window(5)}"), FlowError);
}

}  // namespace
}  // namespace sluice
