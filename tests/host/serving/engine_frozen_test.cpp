// Texts that are computed before anybody asks, and kept known.
#include <gtest/gtest.h>

#include "tests/host/serving/segments_fixture.h"

namespace sluice {
namespace {

using testing::run;
using testing::SegmentsTest;

TEST_F(SegmentsTest, FrozenTextsStay) {
  Engine engine(*device_, *model_, nullptr, options(40));
  Request document = prompt_of({{}, text(2, 45)});
  document.max_tokens = 1;
  document.freeze = true;
  const RequestResult frozen = run(engine, document);
  EXPECT_GT(frozen.frozen, 0U);
  run(engine, prompt_of({text(1, 3), text(3, 40)}));
  for (int i = 0; i < 10; ++i) run(engine, without_segments(prompt_of({text(100 + i, 120)})));
  ASSERT_EQ(engine.frozen_texts().size(), 1U);
  const Request gone = as(prompt_of({text(5, 30), text(3, 40), text(7, 3)}), Rule::kNone);
  EXPECT_EQ(run(engine, gone).copied_tokens, 0);
  const Request again = as(prompt_of({text(5, 30), text(2, 45), text(7, 3)}), Rule::kSparseQ, 1.0);
  const RequestResult result = run(engine, again);
  EXPECT_EQ(result.copied_tokens, 40) << "five blocks of 8";
  EXPECT_LT(distance(result, again), 1e-4);
  const FrozenText text_now = engine.frozen_texts().front();
  EXPECT_EQ(text_now.id, frozen.frozen);
  EXPECT_EQ(text_now.tokens, 40);
  EXPECT_EQ(text_now.pages, 5);
  EXPECT_EQ(text_now.extra_key, "docs");
  EXPECT_EQ(text_now.found, 1U);
  EXPECT_EQ(run(engine, document).frozen, frozen.frozen) << "it is there";
  EXPECT_FALSE(engine.thaw(frozen.frozen + 1));
  EXPECT_TRUE(engine.thaw(frozen.frozen));
  EXPECT_FALSE(engine.thaw(frozen.frozen));
  EXPECT_TRUE(engine.frozen_texts().empty());
  EXPECT_EQ(run(engine, as(prompt_of({text(9, 21), text(2, 45), text(7, 3)}), Rule::kNone)).copied_tokens, 0);
}

TEST_F(SegmentsTest, FrozenTextsGiveWayToRequests) {
  Engine engine(*device_, *model_, nullptr, options(40));
  for (int i = 0; i < 3; ++i) {
    Request document = prompt_of({{}, text(20 + i, 48)}, i == 0 ? "other" : "docs");
    document.max_tokens = 1;
    document.freeze = true;
    EXPECT_GT(run(engine, document).frozen, 0U);
  }
  run(engine, as(prompt_of({text(5, 9), text(21, 48), text(7, 3)}), Rule::kNone));
  // All but a few pages: the two that nobody has found go.
  const Request large = without_segments(prompt_of({text(9, 250)}));
  EXPECT_LT(distance(run(engine, large), large), 1e-4);
  const std::vector<FrozenText> left = engine.frozen_texts();
  ASSERT_EQ(left.size(), 1U);
  EXPECT_EQ(left.front().found, 1U);
  // Half of the pool is theirs.
  for (int i = 0; i < 2; ++i) {
    Request document = prompt_of({{}, text(30 + i, 48)});
    document.max_tokens = 1;
    document.freeze = true;
    EXPECT_GT(run(engine, document).frozen, 0U);
  }
  Request fourth = prompt_of({{}, text(40, 48)});
  fourth.freeze = true;
  EXPECT_THROW(engine.submit(fourth), InputError);
  EXPECT_TRUE(engine.thaw(left.front().id));
  EXPECT_GT(run(engine, fourth).frozen, left.front().id);
}

TEST_F(SegmentsTest, FrozenTextsMayHaveBlocksInCommon) {
  Engine engine(*device_, *model_, nullptr, options(80));
  const auto freeze = [&](std::vector<int32_t> tokens) {
    Request document = prompt_of({{}, std::move(tokens)});
    document.max_tokens = 1;
    document.freeze = true;
    return run(engine, document).frozen;
  };
  std::vector<int32_t> longer = text(2, 40);
  const std::vector<int32_t> more = text(3, 24);
  longer.insert(longer.end(), more.begin(), more.end());
  const uint64_t first = freeze(text(2, 40));
  const uint64_t second = freeze(longer);
  ASSERT_NE(first, second);
  EXPECT_TRUE(engine.thaw(first));
  const Request asked = as(prompt_of({text(5, 30), longer, text(7, 3)}), Rule::kSparseQ, 1.0);
  const RequestResult result = run(engine, asked);
  EXPECT_EQ(result.copied_tokens, 64) << "the longer one has all of its blocks";
  EXPECT_LT(distance(result, asked), 1e-4);
  EXPECT_TRUE(engine.thaw(second));
  EXPECT_EQ(run(engine, as(prompt_of({text(6, 29), longer, text(7, 3)}), Rule::kNone)).copied_tokens, 0);
}

TEST_F(SegmentsTest, FrozenTextsThatCannotBeAreRefused) {
  Engine engine(*device_, *model_, nullptr, options(40));
  Request document = prompt_of({{}, text(2, 48)});
  document.freeze = true;
  Request short_one = prompt_of({{}, text(2, 7)});
  short_one.freeze = true;
  EXPECT_THROW(engine.submit(short_one), InputError);
  Request long_one = prompt_of({{}, text(2, 168)});
  long_one.freeze = true;
  EXPECT_THROW(engine.submit(long_one), InputError);
  Request two = prompt_of({text(1, 8), text(2, 48)});
  two.freeze = true;
  EXPECT_THROW(engine.submit(two), InputError);
  EngineOptions alone = options(40);
  alone.prefix_cache = false;
  Engine without(*device_, *model_, nullptr, alone);
  EXPECT_THROW(without.submit(document), InputError);
  EXPECT_TRUE(engine.frozen_texts().empty());
}

}  // namespace
}  // namespace sluice
