// What a group keeps whose flow evicts: numbers of tokens, and the pages that they take, in random workloads.
#include "host/serving/token_budget.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <set>
#include <vector>

#include "host/serving/scheduler.h"
#include "scripting/pattern/analysis.h"

namespace sluice {
namespace {

Eviction rule(int budget, int first, int recent, int chunk) {
  Eviction eviction;
  eviction.budget = budget;
  eviction.first = first;
  eviction.recent = recent;
  eviction.chunk = chunk;
  return eviction;
}

// Rows one by one, counted as they come and go.
TEST(TokenBudget, CountsAsTokensComeAndGo) {
  for (const int chunk : {0, 1, 7, 20, 40}) {
    for (const int prompt : {0, 1, 19, 20, 21, 39, 40, 41, 100, 123}) {
      const TokenBudget budget(rule(40, 0, 1, chunk), 1000);
      int held = 0;
      for (int row = 0; row < prompt + 60; ++row) {
        SCOPED_TRACE(testing::Message() << "chunk " << chunk << ", prompt " << prompt << ", row " << row);
        EXPECT_EQ(budget.held(row, prompt), held);
        const bool begins_chunk = row < prompt && chunk > 0 && row % chunk == 0;
        const int coming = row >= prompt ? 1 : begins_chunk ? budget.chunk_end(row, prompt) - row : 0;
        if (coming > 0) held = std::min(held, 40 - coming);
        EXPECT_EQ(budget.staying(row, prompt), held);
        ++held;
        EXPECT_LE(held, chunk == 0 && row < prompt ? prompt : 40);
        EXPECT_LE(held, budget.slots(row + 1, prompt));
        EXPECT_LE(held, budget.most_slots(prompt + 60, prompt));
      }
    }
  }
}

TEST(TokenBudget, WhatAPatternKeepsHasToFit) {
  const auto keeping = [](int budget, int first, int recent, int chunk, const Pattern& pattern) {
    Eviction eviction = rule(budget, first, recent, chunk);
    eviction.keep = pattern;
    return TokenBudget(eviction, 500);
  };
  EXPECT_NO_THROW(keeping(20, 0, 1, 1, Pattern::window(20)));
  EXPECT_THROW(keeping(19, 0, 1, 1, Pattern::window(20)), FlowError);
  EXPECT_NO_THROW(keeping(23, 3, 20, 1, Pattern::window(20)));
  EXPECT_THROW(keeping(22, 3, 20, 1, Pattern::window(20)), FlowError);
  EXPECT_THROW(keeping(28, 0, 1, 10, Pattern::window(20)), FlowError) << "19 of before, and a chunk of 10";
  EXPECT_NO_THROW(keeping(29, 0, 1, 10, Pattern::window(20)));
  EXPECT_THROW(keeping(400, 0, 1, 1, Pattern::causal()), FlowError);
}

// For every row, and what comes with it, brute force over the pattern.
TEST(TokenBudget, RefusesExactlyWhatCannotBe) {
  std::mt19937 random(3);
  const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
  constexpr int kRows = 120;
  int refused = 0;
  for (int run = 0; run < 60; ++run) {
    const Pattern pattern =
        run % 2 == 0 ? Pattern::dilated(draw(1, 6), draw(1, 5)) : Pattern::sink(draw(1, 9)) | Pattern::window(draw(1, 20));
    Eviction eviction = rule(0, draw(0, 5), draw(1, 9), draw(0, 3) == 0 ? 0 : draw(1, 12));
    eviction.keep = pattern;
    const std::vector<int32_t> last = PatternAnalysis(pattern).last_readers(kRows);
    int most = 0;
    for (const int together : {1, eviction.chunk}) {
      for (int first = 0; together > 0 && first < kRows; first += together) {
        const int newest = std::min(first + together, kRows) - 1;
        int kept = newest - first + 1;
        for (int token = 0; token < first; ++token)
          kept += token < eviction.first || token > newest - eviction.recent || last[static_cast<size_t>(token)] >= first ? 1 : 0;
        most = std::max(most, kept);
      }
    }
    eviction.budget = most;
    EXPECT_NO_THROW(TokenBudget(eviction, kRows)) << run;
    eviction.budget = most - 1;
    EXPECT_THROW(TokenBudget(eviction, kRows), FlowError) << run;
    ++refused;
  }
  EXPECT_EQ(refused, 60);
}

TEST(TokenBudget, SequencesKeepToIt) {
  for (unsigned seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto draw = [&](int low, int high) { return std::uniform_int_distribution<int>(low, high)(random); };
    constexpr int kPage = 4;
    const int chunk = draw(0, 3) == 0 ? 0 : draw(1, 20);
    GroupView view;
    view.budget = std::make_shared<TokenBudget>(rule(24, 2, 2, chunk), 400);
    SchedulerOptions options;
    options.max_batch = 5;
    options.max_pass_tokens = draw(5, 40);
    options.max_logit_rows = options.max_batch;
    options.decode_differs = true;
    options.views = {view};
    options.most_positions = 400;
    PageCache cache(draw(chunk == 0 ? 60 : 12, 70), kPage, false);
    Scheduler scheduler(cache, options);
    std::vector<std::unique_ptr<Sequence>> live;
    int submitted = 0;
    while (submitted < 25 || !live.empty()) {
      if (submitted < 25 && (live.empty() || draw(0, 2) == 0)) {
        auto sequence = std::make_unique<Sequence>();
        sequence->id = static_cast<uint64_t>(++submitted);
        sequence->prompt = draw(1, 150);
        sequence->tokens.assign(static_cast<size_t>(sequence->prompt), 1);
        sequence->most_tokens = sequence->prompt + draw(0, 60);
        scheduler.add(*sequence);
        live.push_back(std::move(sequence));
      }
      scheduler.admit();
      const ScheduledPass& pass = scheduler.plan();
      ASSERT_FALSE(pass.empty());
      const PassBatch batch = pass.batch.batch();
      const GroupPages& kept = batch.groups[0];
      std::set<int32_t> used;
      for (size_t s = 0; s < pass.entries.size(); ++s) {
        const ScheduledPass::Entry& entry = pass.entries[s];
        const int prompt = entry.sequence->prompt - 1;
        const int index = static_cast<int>(s);
        EXPECT_EQ(kept.held[s], view.budget->held(entry.first, prompt));
        EXPECT_EQ(kept.staying(index, entry.rows), view.budget->staying(entry.first, prompt));
        if (!entry.decoding) EXPECT_LE(entry.first + entry.rows, kept.chunk_ends[s]);
        if (chunk > 0 || entry.decoding) EXPECT_LE(kept.lengths[s], 24);
        const int listed = pages_for(std::max(kept.lengths[s], kept.held[s]), kPage);
        for (int i = 0; i < listed; ++i)
          EXPECT_TRUE(used.insert(kept.page_indices[static_cast<size_t>(kept.page_indptr[s] + i)]).second);
      }
      scheduler.complete();
      std::vector<Sequence*> ended;
      for (const ScheduledPass::Entry& entry : pass.entries) {
        if (entry.logit_rows == 0) continue;
        if (entry.sequence->computed >= entry.sequence->most_tokens) {
          ended.push_back(entry.sequence);
        } else {
          entry.sequence->tokens.push_back(1);
        }
      }
      for (Sequence* sequence : ended) {
        scheduler.remove(*sequence);
        std::erase_if(live, [&](const auto& each) { return each.get() == sequence; });
      }
    }
    EXPECT_EQ(cache.available(), cache.pages()) << "pages leaked";
  }
}

}  // namespace
}  // namespace sluice
