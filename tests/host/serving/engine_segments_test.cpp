// Text that stood elsewhere before: what is copied, what is computed again, and that nothing wrong is ever found.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "host/serving/kv_cache.h"
#include "kernels/cpu/device/device.h"
#include "scripting/base/resource_error.h"
#include "tests/host/serving/segments_fixture.h"

namespace sluice {
namespace {

using testing::run;
using testing::SegmentsTest;

TEST_F(SegmentsTest, RecomputingEverythingGivesWhatComputingDoes) {
  for (const auto& [rule, share, boundary] : {std::tuple(Rule::kAll, 0.0, 0),
                                              {Rule::kSparseQ, 1.0, 0},
                                              {Rule::kSparseQ, 1.0, 1},
                                              {Rule::kSparseQ, 1.0, 3},
                                              {Rule::kSparseQ, 1.0, 2},
                                              {Rule::kKeys, 1.0, 1}}) {
    Engine engine(*device_, *model_, nullptr, options());
    run(engine, prompt_of({text(1, 13), text(2, 40), text(3, 5), text(4, 37)}));
    const Request again = as(prompt_of({text(5, 30), text(4, 37), text(6, 9), text(2, 40), text(7, 3)}), rule, share, boundary);
    const RequestResult result = run(engine, again);
    EXPECT_EQ(result.copied_tokens, 72) << "four and five blocks of 8";
    EXPECT_EQ(result.recomputed_tokens, 72);
    EXPECT_LT(distance(result, again), 1e-4) << static_cast<int>(rule) << " from layer " << boundary;
  }
}

TEST_F(SegmentsTest, RulesComputeWhatTheySay) {
  Engine engine(*device_, *model_, nullptr, options());
  run(engine, prompt_of({text(1, 13), text(2, 40), text(3, 5), text(4, 37)}));
  const Request again = prompt_of({text(5, 30), text(4, 37), text(6, 9), text(2, 40), text(7, 3)});
  const RequestResult none = run(engine, as(again, Rule::kNone));
  EXPECT_EQ(none.copied_tokens, 72);
  EXPECT_EQ(none.recomputed_tokens, 0);
  EXPECT_GT(distance(none, again), 1e-4) << "the copies know nothing of their new context";
  EXPECT_EQ(run(engine, as(again, Rule::kEdges)).recomputed_tokens, 16) << "the blocks that have them";
  EXPECT_EQ(run(engine, as(again, Rule::kKeys, 0.25)).recomputed_tokens, 18);
  const int sparse = run(engine, as(again, Rule::kSparseQ, 0.25)).recomputed_tokens;
  EXPECT_GE(sparse, 18 + 8) << "and blocks beside what is the prompt's own";
  EXPECT_LE(sparse, 18 + 4 * 8);
}

/// Has no memory for what looking at rows needs beside the pool.
class CrowdedDevice final : public cpu::CpuDevice {
 public:
  using CpuDevice::CpuDevice;
  int add_row_masses(const RowMasses&, Matrix, Matrix) override { throw DeviceMemoryError("no memory is free"); }
};

TEST_F(SegmentsTest, WithoutMemoryToLookEverythingIsComputed) {
  CrowdedDevice crowded{CpuOptions()};
  const auto model = load_model(directory_.path(), crowded);
  for (const int boundary : {0, 1}) {
    Engine engine(crowded, *model, nullptr, options());
    run(engine, prompt_of({text(1, 13), text(2, 40), text(3, 5), text(4, 37)}));
    const Request again = prompt_of({text(5, 30), text(4, 37), text(6, 9), text(2, 40), text(7, 3)});
    const RequestResult result = run(engine, as(again, Rule::kSparseQ, 0.2, boundary));
    EXPECT_EQ(result.copied_tokens, 0);
    EXPECT_EQ(result.recomputed_tokens, 0);
    EXPECT_LT(distance(result, again), 1e-4);
    EXPECT_EQ(engine.stats().copied_tokens, 0U);
    const RequestResult known = run(engine, as(again, Rule::kSparseQ, 0.2, boundary));
    EXPECT_EQ(known.cached_tokens, 112) << "full pages, as of any prompt that was computed";
    EXPECT_LT(distance(known, again), 1e-4);
    EXPECT_EQ(run(engine, as(prompt_of({text(8, 7), text(2, 40), text(9, 3)}), Rule::kNone)).copied_tokens, 40);
  }
}

TEST_F(SegmentsTest, OneTokenIsAnAnswer) {
  Engine engine(*device_, *model_, nullptr, options());
  run(engine, prompt_of({text(1, 13), text(2, 40)}));
  Request warming = as(prompt_of({text(5, 30), text(2, 40), text(6, 9), text(3, 40), text(7, 5)}), Rule::kNone);
  warming.max_tokens = 1;
  warming.probe_every = 1;
  const RequestResult one = run(engine, warming);
  EXPECT_EQ(one.copied_tokens, 40) << "the other segment is new";
  ASSERT_EQ(one.tokens.size(), 1U);
  EXPECT_EQ(one.probabilities.of_tokens.size(), 1U);
  EXPECT_GT(one.prefill_seconds, 0);
  EXPECT_LT(one.prefill_seconds, 100);
  EXPECT_LT(one.decode_seconds, 100) << "since the prompt was there, not since the machine was";
  for (const double share : one.mass) EXPECT_EQ(share, 1) << "dense layers see all";
  const RequestResult later = run(engine, as(prompt_of({text(8, 21), text(3, 40), text(9, 5)}), Rule::kNone));
  EXPECT_EQ(later.copied_tokens, 40) << "whoever asked for one token made it known";
}

TEST_F(SegmentsTest, AnAnswerMayBeCancelledAsItBegins) {
  Engine engine(*device_, *model_, nullptr, options());
  run(engine, prompt_of({text(1, 13), text(2, 40)}));
  engine.on_token([&](uint64_t id, const GeneratedToken&) { engine.cancel(id); });
  const RequestResult result = run(engine, as(prompt_of({text(5, 30), text(2, 40), text(7, 5)}), Rule::kNone));
  EXPECT_EQ(result.reason, FinishReason::kCancelled);
  EXPECT_EQ(result.tokens.size(), 1U);
  engine.on_token({});
  EXPECT_EQ(run(engine, as(prompt_of({text(6, 30), text(2, 40), text(7, 5)}), Rule::kAll)).tokens.size(), 6U);
}

TEST_F(SegmentsTest, AKnownPrefixGoesFirst) {
  Engine engine(*device_, *model_, nullptr, options());
  const Request made = prompt_of({{}, text(2, 40), text(3, 5)});
  run(engine, made);
  const RequestResult result = run(engine, as(made, Rule::kNone));
  EXPECT_EQ(result.copied_tokens, 0);
  EXPECT_EQ(result.cached_tokens, 40);
  EXPECT_EQ(distance(result, made), 0);
}

TEST_F(SegmentsTest, NobodyFindsWhatGoesByAnotherNameOrIsAnothers) {
  Engine engine(*device_, *model_, nullptr, options());
  run(engine, prompt_of({text(1, 13), text(2, 40)}));
  const std::vector<std::vector<int32_t>> parts = {text(5, 30), text(2, 40), text(7, 3)};
  for (const std::string name : {"doc", "", "docs2"}) {
    const Request other = as(prompt_of(parts, name), Rule::kNone);
    const RequestResult result = run(engine, other);
    EXPECT_EQ(result.copied_tokens, 0) << name;
    EXPECT_EQ(distance(result, other), 0);
  }
  Request stranger = as(prompt_of(parts), Rule::kNone);
  stranger.tenant = "bob";
  EXPECT_EQ(run(engine, stranger).copied_tokens, 0);
  Request changed = as(prompt_of(parts), Rule::kNone);
  for (size_t token = 30; token < 70; token += 8) changed.prompt[token] ^= 1;
  EXPECT_EQ(run(engine, changed).copied_tokens, 0) << "a token in each block";
}

TEST_F(SegmentsTest, WhatIsCopiedIsNobodyElsesPrefix) {
  Engine engine(*device_, *model_, nullptr, options());
  run(engine, prompt_of({text(1, 13), text(2, 40)}));
  const Request again = as(prompt_of({text(5, 30), text(2, 40), text(7, 20)}), Rule::kNone);
  EXPECT_GT(run(engine, again).copied_tokens, 0);
  const Request exact = without_segments(again);
  const RequestResult result = run(engine, exact);
  EXPECT_LE(result.cached_tokens, 30) << "of what stands before the first copy";
  EXPECT_EQ(distance(result, exact), 0);
}

TEST_F(SegmentsTest, AnswersAreSegmentsOfLaterPrompts) {
  Engine engine(*device_, *model_, nullptr, options());
  Request first = without_segments(prompt_of({text(1, 13)}));
  first.answer_extra_key = "team";
  first.max_tokens = 45;
  const std::vector<int32_t> answer = run(engine, first).tokens;
  // Another's prompt has it; its own answer is a segment, too, though some of its prompt is copied.
  Request second = as(prompt_of({text(5, 30), answer, text(7, 3)}, "team"), Rule::kSparseQ, 0.1);
  second.answer_extra_key = "team";
  second.max_tokens = 40;
  const RequestResult reply = run(engine, second);
  EXPECT_EQ(reply.copied_tokens, 40) << "44 of 45 tokens have K and V, in blocks of 8";
  const Request third = as(prompt_of({text(9, 21), reply.tokens, text(3, 5), answer, text(8, 2)}, "team"), Rule::kAll);
  const RequestResult last = run(engine, third);
  EXPECT_GE(last.copied_tokens, 40 + 24);
  EXPECT_LT(distance(last, third), 1e-4);
  EXPECT_EQ(run(engine, as(prompt_of({text(4, 21), answer, text(8, 2)}, "others"), Rule::kNone)).copied_tokens, 0);
}

TEST_F(SegmentsTest, TheEndOfATextIsKnownHoweverFullItsPageIs) {
  for (const int before : {3, 5, 8, 13}) {
    for (const int tokens : {8, 15, 16, 17, 24, 32}) {
      for (const int behind : {1, 2, 7, 8, 20}) {
        Engine engine(*device_, *model_, nullptr, options());
        run(engine, prompt_of({text(1, before), text(2, tokens), text(3, behind)}));
        const Request again = as(prompt_of({text(5, 30), text(2, tokens), text(7, 20)}), Rule::kAll);
        const RequestResult result = run(engine, again);
        EXPECT_EQ(result.copied_tokens, tokens / 8 * 8) << before << " before, " << behind << " behind";
        EXPECT_LT(distance(result, again), 1e-4);
      }
    }
  }
}

TEST_F(SegmentsTest, CopiesAreNotCopied) {
  Engine engine(*device_, *model_, nullptr, options(32));
  run(engine, prompt_of({text(1, 13), text(2, 40), text(3, 9)}));
  // A copy of it, which stays, and requests that take the pages of what was copied.
  const Request again = as(prompt_of({text(5, 30), text(2, 40), text(7, 12)}), Rule::kNone);
  EXPECT_EQ(run(engine, again).copied_tokens, 40);
  for (int i = 0; i < 4; ++i) run(engine, without_segments(prompt_of({text(20 + i, 150)})));
  const RequestResult result = run(engine, as(prompt_of({text(6, 17), text(2, 40), text(7, 3)}), Rule::kNone));
  EXPECT_EQ(result.copied_tokens, 0) << "the original is gone, and a copy is nobody's to copy";
}

TEST_F(SegmentsTest, WhatIsOftenWantedStays) {
  Engine engine(*device_, *model_, nullptr, options(45));  // of three such prompts
  run(engine, prompt_of({text(1, 13), text(2, 40), text(3, 9)}));
  for (int i = 0; i < 10; ++i) {
    const RequestResult result = run(engine, as(prompt_of({text(30 + i, 40 + i), text(2, 40), text(50 + i, 20)}), Rule::kNone));
    EXPECT_EQ(result.copied_tokens, 40) << "the " << i << "th time";
  }
}

TEST_F(SegmentsTest, AllComputedAgainIsAPrefixAsAnyOther) {
  Engine engine(*device_, *model_, nullptr, options());
  run(engine, prompt_of({text(1, 13), text(2, 40), text(3, 9)}));
  const Request again = as(prompt_of({text(5, 30), text(2, 40), text(7, 20)}), Rule::kAll);
  EXPECT_EQ(run(engine, again).copied_tokens, 40);
  const Request exact = without_segments(again);
  const RequestResult result = run(engine, exact);
  EXPECT_GE(result.cached_tokens, 80);
  EXPECT_LT(distance(result, exact), 1e-5);
}

TEST_F(SegmentsTest, CallersTakeTurns) {
  EngineOptions slow = options();
  slow.max_pass_tokens = 8;
  Engine engine(*device_, *model_, nullptr, slow);
  run(engine, prompt_of({text(1, 13), text(2, 40), text(3, 9)}));
  std::vector<uint64_t> many;
  for (int i = 0; i < 4; ++i) {
    many.push_back(engine.submit(as(prompt_of({text(30 + i, 40), text(2, 40), text(50 + i, 20)}), Rule::kSparseQ, 0.5)));
  }
  Request other = as(prompt_of({text(40, 40), text(2, 40), text(60, 20)}), Rule::kSparseQ, 0.5);
  other.caller = 5;
  const uint64_t id = engine.submit(other);
  std::vector<uint64_t> ended;
  while (engine.step()) {
    for (const RequestResult& result : engine.take_finished()) ended.push_back(result.id);
  }
  ASSERT_EQ(ended.size(), 5U);
  EXPECT_LE(std::find(ended.begin(), ended.end(), id) - ended.begin(), 1) << "second at the latest";
}

TEST_F(SegmentsTest, FieldsOfFlowsAreThoseOfTheNewPlace) {
  const Plan plan = plan_of(testing::kQuest);
  Engine engine(*device_, *model_, &plan, options());
  run(engine, prompt_of({text(1, 13), text(2, 40), text(3, 5), text(4, 37), text(8, 9)}));  // of answers nothing is known
  const Request again = as(prompt_of({text(5, 30), text(4, 37), text(6, 9), text(2, 40), text(7, 3)}), Rule::kSparseQ, 1.0);
  const RequestResult result = run(engine, again);
  EXPECT_EQ(result.copied_tokens, 72);
  Engine plain(*device_, *model_, &plan, options());
  Request forced = without_segments(again);
  forced.given = result.tokens;
  const RequestResult wanted = run(plain, forced);
  for (size_t i = 0; i < result.tokens.size(); ++i)
    EXPECT_NEAR(result.probabilities.of_tokens[i], wanted.probabilities.of_tokens[i], 1e-4);
}

TEST_F(SegmentsTest, WhatAFlowDecodesIsFoundByTheSameFlowAlone) {
  const Plan quest = plan_of(testing::kQuest);
  std::string other_source = testing::kQuest;
  other_source.replace(other_source.find("k = 2"), 5, "k = 3");
  const Plan other = plan_of(other_source);
  for (const Plan* const finder : {static_cast<const Plan*>(nullptr), &other, &quest}) {
    EngineOptions shared = options();
    shared.cache = create_shared_cache(*device_, model_->config(), options());
    Engine engine(*device_, *model_, &quest, shared);
    Request first = without_segments(prompt_of({text(1, 61)}));
    first.answer_extra_key = "team";
    first.max_tokens = 45;
    const std::vector<int32_t> answer = run(engine, first).tokens;
    EXPECT_EQ(run(engine, as(prompt_of({text(6, 30), answer, text(7, 3)}, "others"), Rule::kNone)).copied_tokens, 0);
    Engine finding(*device_, *model_, finder, shared);
    const Request again = as(prompt_of({text(5, 30), answer, text(7, 3)}, "team"), Rule::kAll);
    const RequestResult result = run(finding, again);
    EXPECT_EQ(result.copied_tokens, finder == &quest ? 40 : 0);
    Engine plain(*device_, *model_, finder, options());
    Request forced = without_segments(again);
    forced.given = result.tokens;
    EXPECT_LT(testing::largest_distance(result, run(plain, forced)), 1e-4);
  }
}

TEST_F(SegmentsTest, PagesThatWereNeededElsewhereAreNotFound) {
  EngineOptions few = options(16);
  Engine engine(*device_, *model_, nullptr, few);
  run(engine, prompt_of({text(1, 13), text(2, 40)}));
  run(engine, without_segments(prompt_of({text(9, 110)})));  // takes nearly all pages
  const Request again = as(prompt_of({text(5, 30), text(2, 40), text(7, 3)}), Rule::kSparseQ, 1.0);
  const RequestResult result = run(engine, again);
  EXPECT_LT(result.copied_tokens, 40);
  EXPECT_LT(distance(result, again), 1e-4);
}

// Copies are made once a layer has said what is computed: others may have taken the pages by then.
TEST_F(SegmentsTest, PagesThatAreTakenMeanwhileAreNotCopied) {
  for (const int boundary : {1, 2}) {  // by layer 0 copies are made at once
    EngineOptions slow = options(20);
    slow.max_pass_tokens = 8;
    Engine engine(*device_, *model_, nullptr, slow);
    run(engine, prompt_of({text(1, 13), text(2, 40)}));
    const Request again = as(prompt_of({text(5, 30), text(2, 40), text(7, 9)}), Rule::kSparseQ, 0.01, boundary);
    const uint64_t id = engine.submit(again);
    engine.step();
    engine.submit(without_segments(prompt_of({text(9, 66)})));  // all pages that nobody uses, one after the other
    RequestResult result;
    for (RequestResult& each : engine.run_all()) {
      if (each.id == id) result = std::move(each);
    }
    ASSERT_EQ(result.copied_tokens, 0) << "by layer " << boundary;
    EXPECT_LT(distance(result, again), 1e-4) << "by layer " << boundary;
  }
}

TEST_F(SegmentsTest, ManyAtOnceInAPoolThatIsTooSmall) {
  EngineOptions few = options(40);
  few.max_pass_tokens = 16;
  Engine engine(*device_, *model_, nullptr, few);
  run(engine, prompt_of({text(1, 3), text(2, 40), text(3, 5), text(4, 24)}));
  std::vector<Request> asked;
  for (int i = 0; i < 12; ++i) {
    const Rule rule = i % 3 == 0 ? Rule::kAll : Rule::kSparseQ;
    asked.push_back(
        as(prompt_of({text(10 + i, 5 + i), text(i % 2 == 0 ? 2 : 4, i % 2 == 0 ? 40 : 24), text(30 + i, 4)}), rule, 1.0, i % 4));
    asked.back().max_tokens = 20;
  }
  std::map<uint64_t, size_t> places;
  for (size_t i = 0; i < asked.size(); ++i) places[engine.submit(asked[i])] = i;
  int copied = 0;
  for (const RequestResult& result : engine.run_all()) {
    copied += result.copied_tokens;
    EXPECT_LT(distance(result, asked[places.at(result.id)]), 1e-4) << "request " << places.at(result.id);
  }
  EXPECT_GT(copied, 0);
}

TEST_F(SegmentsTest, ARequestMayEndInTheMidst) {
  EngineOptions slow = options();
  slow.max_pass_tokens = 8;
  Engine engine(*device_, *model_, nullptr, slow);
  run(engine, prompt_of({text(1, 13), text(2, 40)}));
  const Request again = as(prompt_of({text(5, 30), text(2, 40), text(7, 3)}), Rule::kSparseQ, 0.5);
  const uint64_t id = engine.submit(again);
  for (int i = 0; i < 3; ++i) engine.step();
  engine.cancel(id);
  EXPECT_EQ(engine.run_all().at(0).reason, FinishReason::kCancelled);
  const RequestResult next = run(engine, again);
  EXPECT_GT(next.copied_tokens, 0);
  EXPECT_EQ(next.tokens.size(), 6U);
}

TEST_F(SegmentsTest, WhoDecodesDoesNotWaitForAWholePrompt) {
  EngineOptions slow = options();
  slow.max_pass_tokens = 8;
  Engine engine(*device_, *model_, nullptr, slow);
  run(engine, prompt_of({text(1, 13), text(2, 40)}));
  Request talks = without_segments(prompt_of({text(8, 4)}));
  talks.max_tokens = 30;
  const uint64_t id = engine.submit(talks);
  int tokens = 0;
  engine.on_token([&](uint64_t of, const GeneratedToken&) { tokens += of == id ? 1 : 0; });
  while (tokens < 2) engine.step();
  engine.submit(as(prompt_of({text(5, 30), text(2, 40), text(7, 3)}), Rule::kSparseQ, 0.5));
  const int before = tokens;
  for (int i = 0; i < 6; ++i) engine.step();
  EXPECT_GE(tokens, before + 5) << "a chunk of the other's prompt, then a token";
  engine.run_all();
}

// Of several callers over a few documents, some cancelled, in a pool without room for all: a miss, or what computing gives.
TEST_F(SegmentsTest, NoneOfAThousandRequestsGetsAWrongToken) {
  constexpr int kRequests = 1000;
  EngineOptions few = options(48);
  few.max_pass_tokens = 24;
  Engine engine(*device_, *model_, nullptr, few);
  std::mt19937 random(11);
  const auto draw = [&](int first, int last) { return std::uniform_int_distribution<int>(first, last)(random); };
  std::map<uint64_t, Request> live;
  int ended = 0;
  int copied = 0;
  int preempted = 0;
  int frozen = 0;
  const auto draw_request = [&] {
    std::vector<std::vector<int32_t>> parts = {text(draw(100, 1000), draw(0, 20))};
    for (int i = draw(1, 3); i > 0; --i) {
      const int document = draw(1, 8);
      parts.push_back(text(document, 12 + 5 * document));
      parts.push_back(text(draw(100, 1000), draw(i == 1 ? 1 : 0, 6)));
    }
    Request made = prompt_of(parts, draw(0, 3) == 0 ? "other" : "docs");
    std::erase_if(made.segments, [](const Segment& segment) { return segment.first == segment.end; });
    made.tenant = draw(0, 3) == 0 ? "another" : "one";
    made.caller = static_cast<uint64_t>(made.tenant.size());
    made.priority = draw(0, 1);
    made.max_tokens = draw(1, 24);
    if (draw(0, 3) == 0) made.answer_extra_key = "docs";
    if (draw(0, 25) == 0) {
      const int document = draw(1, 8);
      made = prompt_of({{}, text(document, 12 + 5 * document)});
      made.tenant = "one";
      made.max_tokens = 1;
      made.freeze = true;
    }
    const std::array rules = {Rule::kAll, Rule::kSparseQ, Rule::kKeys};
    return as(made, rules[static_cast<size_t>(draw(0, 2))], 1.0, draw(0, 3));
  };
  for (int submitted = 0; submitted < kRequests || !live.empty();) {
    while (submitted < kRequests && live.size() < 10 && draw(0, 2) > 0) {
      Request made = draw_request();
      ++submitted;
      try {
        live.emplace(engine.submit(made), std::move(made));
      } catch (const InputError&) {  // no room is left for frozen texts
        ASSERT_TRUE(made.freeze);
        ++ended;
        const std::vector<FrozenText> texts = engine.frozen_texts();
        if (!texts.empty()) engine.thaw(texts[static_cast<size_t>(draw(0, static_cast<int>(texts.size()) - 1))].id);
      }
    }
    if (!live.empty() && draw(0, 120) == 0) {
      const auto unlucky = std::next(live.begin(), draw(0, static_cast<int>(live.size()) - 1));
      engine.cancel(unlucky->first);
    }
    engine.step();
    for (const RequestResult& result : engine.take_finished()) {
      const Request& made = live.at(result.id);
      ++ended;
      copied += result.copied_tokens;
      preempted += result.preemptions;
      frozen += result.frozen > 0 ? 1 : 0;
      ASSERT_LT(distance(result, made), 1e-3) << "request " << result.id << ", " << result.copied_tokens << " tokens copied";
      live.erase(result.id);
    }
  }
  EXPECT_EQ(ended, kRequests);
  EXPECT_GT(copied, 2000);
  EXPECT_GT(preempted, 10);
  EXPECT_GT(frozen, 10);
}

// What is asked for once is gone as soon as others need its pages; a frozen text is not.
TEST_F(SegmentsTest, WrongOnesAreRefused) {
  Engine engine(*device_, *model_, nullptr, options());
  const auto refused = [&](std::vector<Segment> segments) {
    Request made = without_segments(prompt_of({text(1, 20)}));
    made.segments = std::move(segments);
    EXPECT_THROW(engine.submit(made), InputError);
  };
  refused({{0, 21, ""}});
  refused({{-1, 5, ""}});
  refused({{5, 5, ""}});
  refused({{0, 8, ""}, {7, 12, ""}});
  refused({{8, 12, ""}, {0, 4, ""}});
  refused({{0, 8, std::string(257, 'x')}});
  Request wrong = prompt_of({text(1, 20), text(2, 10)});
  EXPECT_THROW(engine.submit(as(wrong, Rule::kSparseQ, 0.5, 4)), InputError) << "there are four layers";
  wrong.recompute = testing::shipped_rule("sparsex", model_->config().query_heads);
  EXPECT_THROW(engine.submit(wrong), InputError) << "of blocks of 16";
  wrong.recompute = testing::shipped_rule("sparsex", model_->config().query_heads + 1, {{"page", "8"}});
  EXPECT_THROW(engine.submit(wrong), InputError) << "of another model";
}

}  // namespace
}  // namespace sluice
