#include "host/serving/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "scripting/base/error.h"

namespace sluice {
namespace {

Sequence sequence_of(uint64_t id, int prompt, int most_tokens) {
  Sequence sequence;
  sequence.id = id;
  sequence.tokens.assign(static_cast<size_t>(prompt), static_cast<int32_t>(id));
  sequence.prompt = prompt;
  sequence.most_tokens = most_tokens;
  return sequence;
}

TEST(Scheduler, ALongPromptDoesNotStopOthersFromDecoding) {
  PageCache cache(64, 8, true);
  Scheduler scheduler(cache, {4, 16, 4, false});
  Sequence quick = sequence_of(1, 1, 8);
  Sequence slow = sequence_of(2, 100, 108);
  scheduler.add(quick);
  scheduler.add(slow);
  scheduler.admit();
  const ScheduledPass& pass = scheduler.plan();
  ASSERT_EQ(pass.entries.size(), 2U);
  EXPECT_EQ(pass.entries[0].sequence, &quick);
  EXPECT_TRUE(pass.entries[0].decoding);
  EXPECT_EQ(pass.entries[1].rows, 15);
}

TEST(Scheduler, ALargeRequestIsNotOvertakenForever) {
  PageCache cache(8, 8, true);
  Scheduler scheduler(cache, {4, 64, 4, false});
  Sequence small = sequence_of(1, 8, 20);
  Sequence large = sequence_of(2, 56, 60);
  Sequence later = sequence_of(3, 8, 20);
  scheduler.add(small);
  scheduler.admit();
  scheduler.add(large);
  scheduler.add(later);
  EXPECT_TRUE(scheduler.admit().empty());  // `later` would fit, but `large` is first in line
  scheduler.remove(small);
  ASSERT_EQ(scheduler.admit().size(), 1U);
  EXPECT_EQ(large.pages().size(), 7U);
}

/// `count` sequences of a caller that decode from their second token on.
std::vector<std::unique_ptr<Sequence>> sequences_of(uint64_t caller, int count, int prompt) {
  static uint64_t id = 100;
  std::vector<std::unique_ptr<Sequence>> made;
  for (int i = 0; i < count; ++i) {
    made.push_back(std::make_unique<Sequence>(sequence_of(++id, prompt, prompt + 20)));
    made.back()->caller = caller;
  }
  return made;
}

TEST(Scheduler, ACallerWithoutAnyIsAdmittedInPlaceOfTheLatestOfAnother) {
  PageCache cache(64, 8, true);
  Scheduler scheduler(cache, {4, 16, 4, false});
  const auto ada = sequences_of(1, 6, 1);
  for (const auto& each : ada) scheduler.add(*each);
  EXPECT_EQ(scheduler.admit().size(), 4U);
  const auto bob = sequences_of(2, 3, 1);
  for (const auto& each : bob) scheduler.add(*each);
  EXPECT_FALSE(scheduler.can_plan_ahead());
  const auto admitted = scheduler.admit();
  ASSERT_EQ(admitted.size(), 2U) << "half of the places";
  EXPECT_EQ(admitted[0], bob[0].get());
  EXPECT_EQ(admitted[1], bob[1].get());
  EXPECT_EQ(ada[0]->preemptions, 0);
  EXPECT_EQ(ada[1]->preemptions, 0);
  EXPECT_EQ(ada[2]->preemptions, 1);
  EXPECT_EQ(ada[3]->preemptions, 1) << "the latest first";
  scheduler.remove(*bob[0]);
  ASSERT_EQ(scheduler.admit().size(), 1U);
  EXPECT_FALSE(bob[2]->pages().empty()) << "bob has the fewest";
  scheduler.remove(*bob[1]);
  scheduler.remove(*bob[2]);
  EXPECT_EQ(scheduler.admit().size(), 2U);
  EXPECT_FALSE(ada[2]->pages().empty());
  EXPECT_FALSE(ada[3]->pages().empty());
}

/// Has a prompt of `pages` pages of 8 tokens, each with tokens of its own from the `common`-th page on.
std::unique_ptr<Sequence> sequence_of_pages(uint64_t caller, int pages, int common = 0) {
  auto made = std::move(sequences_of(caller, 1, 8 * pages)[0]);
  std::fill_n(made->tokens.begin(), 8 * common, 7);
  return made;
}

TEST(Scheduler, NobodyGivesWayToWhoWouldNotFitEvenThen) {
  PageCache cache(100, 8, true);
  Scheduler scheduler(cache, {4, 1000, 4, false});
  const auto first = sequence_of_pages(2, 50);
  const auto second = sequence_of_pages(2, 30);
  scheduler.add(*first);
  scheduler.add(*second);
  ASSERT_EQ(scheduler.admit().size(), 2U);
  scheduler.plan();
  scheduler.complete();
  const auto newcomer = sequence_of_pages(1, 60);
  scheduler.add(*newcomer);
  EXPECT_TRUE(scheduler.admit().empty());
  EXPECT_EQ(scheduler.preemptions(), 0U);
  EXPECT_EQ(scheduler.running(), 2);
  EXPECT_EQ(scheduler.waiting(), 1);
  EXPECT_EQ(cache.available(), 20);
  EXPECT_TRUE(scheduler.can_plan_ahead()) << "nobody is to give way";
  scheduler.remove(*first);
  ASSERT_EQ(scheduler.admit().size(), 1U);
  EXPECT_EQ(newcomer->pages().size(), 60U);
  EXPECT_EQ(second->preemptions, 0);
}

TEST(Scheduler, PagesThatOthersGoOnUsingMakeNoRoom) {
  for (const bool urgent : {false, true}) {
    PageCache cache(50, 8, true);
    Scheduler scheduler(cache, {4, 1000, 4, false});
    std::vector<std::unique_ptr<Sequence>> running;
    for (int i = 0; i < 2; ++i) {
      running.push_back(sequence_of_pages(2, 25, 20));
      scheduler.add(*running.back());
      ASSERT_EQ(scheduler.admit().size(), 1U);
      scheduler.plan();
      scheduler.complete();
    }
    ASSERT_EQ(cache.available(), 20) << "20 pages are shared";
    const auto newcomer = sequence_of_pages(1, 30);
    newcomer->priority = urgent ? 1 : 0;
    scheduler.add(*newcomer);
    // The latest frees 5 pages, both together 30.
    EXPECT_EQ(scheduler.admit().size(), urgent ? 1U : 0U);
    EXPECT_EQ(scheduler.preemptions(), urgent ? 2U : 0U);
    EXPECT_EQ(newcomer->pages().size(), urgent ? 30U : 0U);
  }
}

TEST(Scheduler, PromptsOfSeveralCallersShareAPass) {
  PageCache cache(256, 8, true);
  Scheduler scheduler(cache, {8, 64, 8, false});
  const auto ada = sequences_of(1, 3, 200);
  const auto bob = sequences_of(2, 1, 9);
  const auto eve = sequences_of(3, 1, 200);
  for (const auto* each : {&ada, &bob, &eve}) {
    for (const auto& sequence : *each) scheduler.add(*sequence);
  }
  scheduler.admit();
  std::map<const Sequence*, int> rows;
  for (const ScheduledPass::Entry& entry : scheduler.plan().entries) rows[entry.sequence] += entry.rows;
  EXPECT_EQ(rows[bob[0].get()], 8) << "all that it wants";
  EXPECT_EQ(rows[ada[0].get()], 28);
  EXPECT_EQ(rows[eve[0].get()], 28);
}

TEST(Scheduler, PassesAreShortWhereSeveralCallersRun) {
  PageCache cache(256, 8, true);
  Scheduler scheduler(cache, {8, 512, 8, false});
  const auto rows = [&] {
    const size_t count = scheduler.plan().tokens.size();
    return count;
  };
  const auto ada = sequences_of(1, 2, 600);
  for (const auto& each : ada) scheduler.add(*each);
  scheduler.admit();
  scheduler.note_time(512, 1.0);
  EXPECT_EQ(rows(), 512U) << "she holds up nobody else";
  const auto bob = sequences_of(2, 1, 1);
  scheduler.add(*bob[0]);
  scheduler.admit();
  EXPECT_LT(rows(), 40U);
  EXPECT_GE(rows(), 16U);
}

TEST(Scheduler, PassesAreLongWhereNobodyWaitsForAToken) {
  PageCache cache(512, 8, true);
  Scheduler scheduler(cache, {8, 512, 8, false});
  const auto ada = sequences_of(1, 1, 900);
  const auto bob = sequences_of(2, 1, 900);
  scheduler.add(*ada[0]);
  scheduler.add(*bob[0]);
  scheduler.admit();
  scheduler.note_time(512, 10.0);
  EXPECT_EQ(scheduler.plan().tokens.size(), 512U) << "short passes would serve nobody";
  const auto eve = sequences_of(3, 1, 30);
  scheduler.add(*eve[0]);
  scheduler.admit();
  EXPECT_EQ(scheduler.plan().tokens.size(), 16U) << "eve's first token would come late";
}

TEST(Scheduler, AShortPromptGoesBeforeTheRestOfALongOne) {
  PageCache cache(256, 8, true);
  Scheduler scheduler(cache, {8, 64, 8, false});
  const auto slow = sequences_of(1, 1, 600);
  const auto quick = sequences_of(1, 1, 6);
  scheduler.add(*slow[0]);
  scheduler.add(*quick[0]);
  scheduler.admit();
  const ScheduledPass& pass = scheduler.plan();
  ASSERT_EQ(pass.entries.size(), 2U);
  EXPECT_EQ(pass.entries[0].sequence, quick[0].get());
  EXPECT_EQ(pass.entries[0].rows, 5);
  EXPECT_EQ(pass.entries[1].rows, 59);
}

TEST(Scheduler, ALongPromptAdvancesThoughShortOnesOfItsCallerKeepComing) {
  PageCache cache(256, 8, true);
  Scheduler scheduler(cache, {16, 64, 16, false});
  const auto slow = sequences_of(1, 1, 600);
  scheduler.add(*slow[0]);
  std::vector<std::unique_ptr<Sequence>> quick;
  for (int pass = 0; pass < 30; ++pass) {
    while (quick.size() < 15) {
      quick.push_back(std::move(sequences_of(1, 1, 9)[0]));
      scheduler.add(*quick.back());
    }
    scheduler.admit();
    const ScheduledPass& planned = scheduler.plan();
    EXPECT_EQ(planned.tokens.size(), 64U);
    EXPECT_EQ(planned.entries.front().rows, 8) << "a short one is not cut";
    scheduler.complete();
    std::erase_if(quick, [&](const auto& each) {
      if (each->computed < 8) return false;
      scheduler.remove(*each);
      return true;
    });
  }
  EXPECT_EQ(slow[0]->computed, 30 * 16);
}

TEST(Scheduler, ARowThatACallerHasAloneIsForShortAndForLongPrompts) {
  PageCache cache(2048, 8, true);
  Scheduler scheduler(cache, {32, 512, 32, false});
  std::vector<std::vector<std::unique_ptr<Sequence>>> slow;
  for (uint64_t caller = 1; caller <= 16; ++caller) {
    slow.push_back(sequences_of(caller, 1, 200));
    scheduler.add(*slow.back()[0]);
  }
  const auto quick = sequences_of(1, 1, 9);
  scheduler.add(*quick[0]);
  scheduler.admit();
  scheduler.note_time(512, 10.0);
  std::map<const Sequence*, int> rows;
  for (int pass = 0; pass < 8; ++pass) {
    for (const ScheduledPass::Entry& entry : scheduler.plan().entries) rows[entry.sequence] += entry.rows;
  }
  EXPECT_EQ(rows[quick[0].get()], 6);
  EXPECT_EQ(rows[slow[0][0].get()], 2);
}

TEST(Scheduler, PromptsAdvanceWhereManyDecodeInAnEngineThatIsShared) {
  PageCache cache(256, 8, true);
  Scheduler scheduler(cache, {32, 512, 32, false});
  const auto ada = sequences_of(1, 16, 1);
  const auto bob = sequences_of(2, 1, 200);
  for (const auto& each : ada) scheduler.add(*each);
  scheduler.add(*bob[0]);
  scheduler.admit();
  scheduler.note_time(512, 10.0);
  const ScheduledPass& pass = scheduler.plan();
  ASSERT_EQ(pass.entries.size(), 17U);
  EXPECT_EQ(pass.entries.back().sequence, bob[0].get());
  EXPECT_EQ(pass.entries.back().rows, 16);
}

TEST(Scheduler, EveryCallersPromptsAdvanceHoweverManyShareAnEngine) {
  constexpr uint64_t kCallers = 20;
  PageCache cache(1024, 8, true);
  Scheduler scheduler(cache, {32, 512, 32, false});
  std::vector<std::vector<std::unique_ptr<Sequence>>> prompts;
  for (uint64_t caller = 1; caller <= kCallers; ++caller) {
    prompts.push_back(sequences_of(caller, 1, 200));
    scheduler.add(*prompts.back()[0]);
  }
  const auto decoding = sequences_of(1, 1, 1);
  scheduler.add(*decoding[0]);
  scheduler.admit();
  scheduler.note_time(512, 10.0);
  const ScheduledPass& pass = scheduler.plan();
  EXPECT_EQ(pass.entries.size(), 1 + kCallers);
  EXPECT_EQ(pass.tokens.size(), 1 + kCallers);
}

TEST(Scheduler, RefusesASequenceThatNeverFits) {
  PageCache cache(4, 8, true);
  Scheduler scheduler(cache, {1, 8, 1, false});
  Sequence large = sequence_of(1, 10, 33);
  EXPECT_THROW(scheduler.add(large), InternalError);
}

}  // namespace
}  // namespace sluice
