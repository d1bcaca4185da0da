// Patterns beside and around an index stage: what steps see, and how long pages are kept.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/host/serving/engine_pattern_fixture.h"

namespace sluice {
namespace {

class EnginePatternsAndIndex : public testing::EnginePatterns {};

// What flow.index selects does not look at the query here, so that the judge knows it.
TEST_F(EnginePatternsAndIndex, StandBesideASelectionOfPages) {
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
TEST_F(EnginePatternsAndIndex, BoundWhatAnIndexStageSelects) {
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
TEST_F(EnginePatternsAndIndex, GiveBackPagesAroundAnIndexStage) {
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
TEST_F(EnginePatternsAndIndex, GiveBackPagesInTwoGroupsAndEnd) {
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

TEST_F(EnginePatternsAndIndex, GiveBackPagesOnceADensePromptIsThere) {
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
TEST_F(EnginePatternsAndIndex, ShareBeginningsWhosePagesTheyHaveGivenBack) {
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
TEST_F(EnginePatternsAndIndex, FindRoomInEveryGroupForAsManyPagesAsThePoolHas) {
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
TEST_F(EnginePatternsAndIndex, TakeSnapshotsWithFieldsOfEveryGroup) {
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
TEST_F(EnginePatternsAndIndex, LeaveWindowsOfTheModelToItWhereThereIsAnIndexStage) {
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

}  // namespace
}  // namespace sluice
