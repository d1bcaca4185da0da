// Flows that are a pattern: slots, masks, chunks of prompts, preemption and memory, against a model in float64 with that mask.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "host/serving/engine.h"
#include "scripting/base/error.h"
#include "scripting/lua/trace.h"
#include "scripting/pattern/text.h"
#include "tests/host/transformer/tiny_model.h"
#include "tests/scripting/pattern/boolean_matrix.h"

namespace sluice {
namespace {

class EnginePatterns : public ::testing::Test {
 protected:
  EnginePatterns() {
    tiny_.layers = 4;
    tiny_.draw();
    tiny_.write(directory_.path());
    device_ = create_cpu_device({2});
    model_ = load_model(directory_.path(), *device_);
  }

  /// A flow of `pattern`, a Lua expression in which `p` is sluice.pattern. The judge sees what it says.
  Plan plan(const std::string& pattern, const std::string& options = "") {
    const ModelConfig& config = model_->config();
    const std::string script = "local p = sluice.pattern\nlocal flow = sluice.flow{name = \"pattern\", kv = \"f32\"" + options +
                               "}\nflow.pattern = " + pattern + "\nreturn flow\n";
    Plan plan =
        compile(trace(script, "pattern.lua", {.head_dim = config.head_dim, .group = config.group(), .layers = config.layers}))
            .plan;
    const FlowGraph graph = plan.graph;
    const int layers = config.layers;
    tiny_.sees = [graph, layers](int layer, int kv_head, int position, int seen) {
      const int place = graph.layers.is_sparse(layer, layers) ? graph.patterns.place_of(layer, layers) : LayerPatterns::kNone;
      return place == LayerPatterns::kNone ||
             graph.patterns.patterns[static_cast<size_t>(place)].of_head(kv_head).sees(position, seen);
    };
    return plan;
  }

  struct Bounded {
    std::string pattern;  // Lua, as above
    std::string prefill = "pattern";
    std::string beside = "";  // what is united with the selection
    bool some_full = false;   // layer 1 is dense, and layer 2 has no pattern
  };
  /// A flow with pages of 8 whose index stage takes the first and the last of those that it is shown, for prompts of `prompt`
  /// tokens. The judge sees what it says.
  Plan bounded(const Bounded& told, int prompt) {
    constexpr int kPage = 8;
    const ModelConfig& config = model_->config();
    const std::string script = fmt::format(
        "local p = sluice.pattern\nlocal flow = sluice.flow{{name = \"both\", kv = \"f32\", page = 8, prefill = \"{}\"{}}}\n"
        "flow.pattern = {}\nfunction flow.index(q, c) return sluice.union(sluice.window{{first = 1, last = 1}}, "
        "sluice.window{{last = 1}}{}) end\nreturn flow\n",
        told.prefill, told.some_full ? ", layers = {[1] = \"full\", rest = \"sparse\"}" : "",
        told.some_full ? fmt::format("{{[2] = \"full\", rest = {}}}", told.pattern) : told.pattern, told.beside);
    Plan both =
        compile(trace(script, "both.lua", {.head_dim = config.head_dim, .group = config.group(), .layers = config.layers})).plan;
    const FlowGraph graph = both.graph;
    tiny_.sees = [graph, told, prompt, layers = config.layers](int layer, int kv_head, int position, int seen) {
      if (!graph.is_run_by(layer, layers)) return true;
      const int place = graph.patterns.place_of(layer, layers);
      const auto visible = [&](int head, int token) {
        return place == LayerPatterns::kNone ||
               graph.patterns.patterns[static_cast<size_t>(place)].of_head(head).sees(position, token);
      };
      if (position < prompt - 1) return told.prefill == "dense" || visible(kv_head, seen);
      if (!visible(kv_head, seen)) return false;
      int first = 0;  // of the pages that are shown
      while (!visible(0, first) && !visible(1, first) && first / kPage < position / kPage) ++first;
      if (seen / kPage == first / kPage || seen / kPage == position / kPage) return true;
      return graph.beside() != nullptr && graph.beside()->sees(position, seen);
    };
    return both;
  }

  static EngineOptions options(int pages) {
    EngineOptions options;
    options.kv = DataType::kF32;
    options.pages = pages;
    options.max_batch = 4;
    options.max_pass_tokens = 96;
    options.run_ahead = true;
    return options;
  }

  Request request(int prompt, int max_tokens, int salt) const {
    Request request;
    for (int i = 0; i < prompt; ++i) request.prompt.push_back((i * (31 + 2 * salt) + i * i % 13 + salt) % tiny_.vocabulary);
    request.max_tokens = max_tokens;
    request.ignore_eos = true;
    return request;
  }

  /// The largest error of all logits of a result, beside the judge's.
  double error_of(const Request& request, const RequestResult& result) const {
    std::vector<int> tokens(request.prompt.begin(), request.prompt.end());
    tokens.insert(tokens.end(), result.tokens.begin(), result.tokens.end());
    const std::vector<double> wanted = tiny_.logits(tokens);
    if (wanted.size() != result.logits.size()) return INFINITY;
    double error = 0;
    for (size_t i = 0; i < wanted.size(); ++i) error = std::max(error, std::abs(result.logits[i] - wanted[i]));
    return error;
  }

  void expect_logits(const Plan& plan, const EngineOptions& options, const std::vector<int>& prompts, int max_tokens) {
    Engine engine(*device_, *model_, &plan, options);
    std::vector<Request> requests;
    for (const int prompt : prompts) {
      requests.push_back(request(prompt, max_tokens, prompt));
      requests.back().want_logits = true;
      engine.submit(requests.back());
    }
    for (const RequestResult& result : engine.run_all()) {
      EXPECT_LT(error_of(requests[result.id - 1], result), 2e-3) << "a prompt of " << requests[result.id - 1].prompt.size();
    }
    EXPECT_EQ(engine.stats().pages_free, engine.stats().pages_total) << "pages leaked";
  }

  testing::TinyModel tiny_;
  testing::TemporaryDirectory directory_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Model> model_;
};

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

// What flow.index selects does not look at the query here, so that the judge knows it.
TEST_F(EnginePatterns, StandBesideASelectionOfPages) {
  const ModelConfig& config = model_->config();
  for (const auto& [text, pattern] : {std::pair<const char*, Pattern>{"p.window(20)", Pattern::window(20)},
                                      {"p.window(1)", Pattern::window(1)},
                                      {"p.strided(5, 16)", Pattern::strided(5, 16)},
                                      {"p.dilated(16, 3), p.sink(2)", Pattern::dilated(16, 3) | Pattern::sink(2)}}) {
    for (const int prompt : {1, 33, 210}) {
      SCOPED_TRACE(fmt::format("{}, a prompt of {}", text, prompt));
      const std::string script = fmt::format(
          "local p = sluice.pattern\nlocal flow = sluice.flow{{name = \"beside\", kv = \"f32\", page = 8, layers = "
          "{{[1] = \"full\", rest = \"sparse\"}}}}\nfunction flow.index(q, c) return "
          "sluice.union(sluice.window{{first = 1, last = 1}}, {}) end\nreturn flow\n",
          text);
      const Plan united =
          compile(trace(script, "beside.lua", {.head_dim = config.head_dim, .group = config.group(), .layers = config.layers}))
              .plan;
      tiny_.sees = [&, pattern = pattern](int layer, int, int position, int seen) {
        if (position < prompt - 1 || layer == 1) return true;
        return seen < 8 || seen / 8 == position / 8 || pattern.sees(position, seen);
      };
      expect_logits(united, options(240), {prompt}, 30);
      expect_logits(united, options(50), {prompt, prompt, prompt}, 40);  // which take turns
    }
  }
}

// The index stage is shown the pages that have a token which the step sees, and its own: here it takes the first and the last.
TEST_F(EnginePatterns, BoundWhatAnIndexStageSelects) {
  constexpr int kPrompt = 150;
  for (const char* pattern : {"p.window(40)", "p.sink(3) | p.window(20)", "p.strided(12, 32)", "~p.window(10)",
                              "p.dilated(6, 13)", "p.by_head{p.window(40), p.strided(5, 32)}"}) {
    for (const char* prefill : {"pattern", "dense"}) {
      for (const char* beside : {"", ", p.diag{offset = 20, size = 9}"}) {
        SCOPED_TRACE(fmt::format("{}, prefill {}, beside {}", pattern, prefill, beside));
        const Plan both = bounded({.pattern = pattern, .prefill = prefill, .beside = beside, .some_full = true}, kPrompt);
        expect_logits(both, options(240), {kPrompt}, 30);
        expect_logits(both, options(60), {kPrompt, kPrompt, kPrompt}, 40);  // which take turns
      }
    }
  }
}

// Of 75 pages of a prompt as many as live find room, beside those of a chunk.
TEST_F(EnginePatterns, GiveBackPagesAroundAnIndexStage) {
  constexpr int kPrompt = 600;
  for (const auto& [pattern, pages] : {std::pair{"p.window(40)", 8},
                                       {"p.sink(3) | p.window(20)", 8},
                                       {"p.strided(12, 32)", 81},  // of which every page lives on
                                       {"p.fixed(64)", 20},
                                       {"p.by_head{p.window(40), p.sink(9) | p.window(5)}", 10}}) {
    SCOPED_TRACE(pattern);
    const Plan both = bounded({.pattern = pattern}, kPrompt);
    expect_logits(both, options(pages), {kPrompt}, 40);
    if (pages < 70) expect_logits(both, options(3 * pages), {kPrompt, kPrompt, kPrompt, kPrompt, kPrompt}, 40);
  }
}

// Of large chunks pages stay that lie in more slabs than need be: who gives up its pages for that must end all the same.
TEST_F(EnginePatterns, GiveBackPagesInTwoGroupsAndEnd) {
  for (const bool shares : {false, true}) {
    for (const int prompt : {800, 860}) {
      const Plan both = bounded({.pattern = "{[0] = p.fixed(64), rest = p.strided(12, 32)}"}, prompt);
      EngineOptions told = options(90);
      told.max_pass_tokens = 512;
      told.prefix_cache = shares;
      Engine engine(*device_, *model_, &both, told);
      Request asked = request(prompt, 20, 3);
      engine.submit(asked);
      int passes = 0;
      while (engine.step() && passes < 2000) ++passes;
      ASSERT_LT(passes, 2000) << prompt << ", shares " << shares;
      Engine alone(*device_, *model_, &both, options(600));
      alone.submit(asked);
      EXPECT_EQ(engine.take_finished().at(0).tokens, alone.run_all().at(0).tokens);
    }
  }
}

TEST_F(EnginePatterns, GiveBackPagesOnceADensePromptIsThere) {
  constexpr int kPrompt = 300;
  const Plan both = bounded({.pattern = "p.sink(3) | p.window(20)", .prefill = "dense"}, kPrompt);
  Engine engine(*device_, *model_, &both, options(60));
  engine.submit(request(kPrompt, 40, 3));
  int most_free = 0;
  while (engine.step()) {
    if (engine.stats().running > 0 && engine.stats().decode_passes > 0)
      most_free = std::max(most_free, engine.stats().pages_free);
  }
  EXPECT_GE(most_free, 60 - 6);
  expect_logits(both, options(60), {kPrompt, kPrompt, kPrompt}, 100);
}

// What was given back is found as long as nobody needs its room.
TEST_F(EnginePatterns, ShareBeginningsWhosePagesTheyHaveGivenBack) {
  constexpr int kPrompt = 300;
  for (const char* pattern : {"p.window(40)", "{[2] = \"full\", rest = p.sink(3) | p.window(20)}"}) {
    for (const bool copies : {false, true}) {
      SCOPED_TRACE(fmt::format("{}, copies {}", pattern, copies));
      const Plan both = bounded({.pattern = pattern}, kPrompt);
      Engine engine(*device_, *model_, &both, options(120));
      Request asked = request(kPrompt, 30, 3);
      engine.submit(asked);
      const std::vector<int32_t> wanted = engine.run_all().at(0).tokens;
      asked.copy_prefix = copies;
      engine.submit(asked);
      engine.submit(asked);
      for (const RequestResult& result : engine.run_all()) {
        EXPECT_EQ(result.cached_tokens, (kPrompt - 1) / 8 * 8);
        EXPECT_EQ(result.tokens, wanted);
      }
      Engine small(*device_, *model_, &both, options(std::string(pattern) == "p.window(40)" ? 12 : 70));
      for (int i = 0; i < 4; ++i) small.submit(asked);
      for (const RequestResult& result : small.run_all()) EXPECT_EQ(result.tokens, wanted);
      EXPECT_EQ(small.stats().pages_free, small.stats().pages_total) << "pages leaked";
    }
  }
}

// However slabs are cut.
TEST_F(EnginePatterns, FindRoomInEveryGroupForAsManyPagesAsThePoolHas) {
  const ModelConfig& config = model_->config();
  const std::string script =
      "local flow = sluice.flow{name = \"both\", kv = \"f32\"}\nflow.pattern = {[0] = \"full\", [3] = sluice.pattern.window(64), "
      "rest = "
      "sluice.pattern.window(90)}\nfunction flow.index(q, c) return sluice.window{last = 1} end\nreturn flow\n";
  const Plan both =
      compile(trace(script, "both.lua", {.head_dim = config.head_dim, .group = config.group(), .layers = config.layers})).plan;
  for (int pages = 2; pages < 60; ++pages) {
    Engine engine(*device_, *model_, &both, options(pages));
    EXPECT_NO_THROW(engine.submit(request(16 * pages, 1, 1))) << pages << " pages";
  }
}

// Layers with a pattern lie in another group than full ones, and so do the pages whose fields are refreshed.
TEST_F(EnginePatterns, TakeSnapshotsWithFieldsOfEveryGroup) {
  const ModelConfig& config = model_->config();
  for (const char* prefill : {"pattern", "dense"}) {
    const std::string script = fmt::format(
        "local flow = sluice.flow{{name = \"both\", kv = \"f32\", page = 8, prefill = \"{}\", layers = {{[1] = \"full\", rest = "
        "\"sparse\"}}}}\nflow.pattern = {{[2] = \"full\", rest = sluice.pattern.window(90)}}\nfunction flow.cache(c) c.m = "
        "c.k:mean(\"token\") end\nfunction flow.index(q, c) return sluice.union(sluice.topk(q:dot(c.m):max(\"head\"), {{k = 3, "
        "last = "
        "1}}), sluice.pattern.window(5)) end\nreturn flow\n",
        prefill);
    const Plan both =
        compile(trace(script, "both.lua", {.head_dim = config.head_dim, .group = config.group(), .layers = config.layers})).plan;
    Request asked = request(150, 20, 3);
    asked.want_logits = false;
    asked.want_snapshot = true;
    EngineOptions kept = options(240);
    kept.prefix_cache = false;
    kept.forget_unread = false;
    Engine first(*device_, *model_, &both, kept);
    first.submit(asked);
    const auto wanted = first.run_all();
    kept.forget_unread = true;
    Engine second(*device_, *model_, &both, kept);
    Request other = request(90, 5, 4);  // so that pages have other numbers
    second.submit(other);
    asked.want_snapshot = false;
    asked.snapshot = wanted[0].snapshot;
    const uint64_t id = second.submit(asked);
    for (const RequestResult& result : second.run_all()) {
      if (result.id == id) EXPECT_EQ(result.tokens, wanted[0].tokens) << prefill;
    }
  }
}

// An index stage leaves layers with a window as they are; so does a pattern beside it or around it.
TEST_F(EnginePatterns, LeaveWindowsOfTheModelToItWhereThereIsAnIndexStage) {
  const ModelConfig& config = model_->config();
  constexpr int kWindow = 40;
  constexpr int kPrompt = 150;
  for (const char* prefill : {"pattern", "dense"}) {
    SCOPED_TRACE(prefill);
    const std::string script = fmt::format(
        "local p = sluice.pattern\nlocal flow = sluice.flow{{name = \"both\", kv = \"f32\", page = 8, prefill = "
        "\"{}\"}}\nflow.pattern "
        "= p.window(70)\nfunction flow.index(q, c) return sluice.union(sluice.window{{last = 1}}, p.window(30)) end\nreturn "
        "flow\n",
        prefill);
    const Plan both =
        compile(trace(script, "both.lua", {.head_dim = config.head_dim, .group = config.group(), .layers = config.layers})).plan;
    const bool is_dense = std::string(prefill) == "dense";
    tiny_.sees = [&](int layer, int, int position, int seen) {
      if (layer % 2 == 1) return position - seen < kWindow;
      if (position < kPrompt - 1) return is_dense || position - seen < 70;
      return seen / 8 == position / 8 || position - seen < 30;
    };
    EngineOptions windows = options(240);
    windows.windows = {{{1, 3}, kWindow}};
    expect_logits(both, windows, {kPrompt}, 60);
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
