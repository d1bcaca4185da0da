// Random workloads keep every invariant (scheduler_simulation.h).
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "tests/host/serving/scheduler_simulation.h"
#include "tests/scripting/pattern/boolean_matrix.h"

namespace sluice {
namespace {

using testing::Simulation;

TEST(Scheduler, RandomWorkloadsKeepEveryInvariant) {
  uint64_t preemptions = 0;
  uint64_t shared = 0;
  uint64_t copied = 0;
  uint64_t ahead = 0;
  uint64_t prefills = 0;
  for (unsigned seed = 0; seed < 24; ++seed) {
    const bool differs = seed % 2 == 1;
    const bool share = seed % 3 != 0;
    const int pages = seed % 4 == 0 ? 12 : 40;
    Simulation simulation({seed, pages, 8, {6, seed % 5 == 0 ? 6 : 40, 6 + static_cast<int>(seed % 4), differs}, share});
    simulation.run(60);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
    preemptions += simulation.preemptions();
    shared += simulation.shared_tokens();
    copied += simulation.copied_pages();
    ahead += simulation.passes_ahead();
    prefills += simulation.prefills_ahead();
  }
  EXPECT_GT(preemptions, 50U);  // or the simulation would not show what it should
  EXPECT_GT(shared, 500U);
  EXPECT_GT(copied, 50U);
  EXPECT_GT(ahead, 500U);
  EXPECT_GT(prefills, 100U);
}

TEST(Scheduler, RandomWorkloadsKeepEveryInvariantInGroupsWithWindows) {
  uint64_t preemptions = 0;
  uint64_t shared = 0;
  uint64_t copied = 0;
  uint64_t ahead = 0;
  for (unsigned seed = 0; seed < 60; ++seed) {
    const bool differs = seed % 2 == 1;
    const bool share = seed % 3 != 0;
    const std::vector<int> windows =
        seed % 5 == 0 ? std::vector<int>{0, 1, 17} : std::vector<int>{0, 1 + static_cast<int>(seed) % 40};
    const int pages = seed % 4 == 0 ? 60 : 140;
    Simulation simulation(
        {seed, pages, 8, {6, seed % 10 == 0 ? 6 : 40, 6 + static_cast<int>(seed % 4), differs}, share, windows});
    simulation.run(60);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
    preemptions += simulation.preemptions();
    shared += simulation.shared_tokens();
    copied += simulation.copied_pages();
    ahead += simulation.passes_ahead();
  }
  EXPECT_GT(preemptions, 50U);
  EXPECT_GT(shared, 500U);
  EXPECT_GT(copied, 50U);
  EXPECT_GT(ahead, 500U);
}

TEST(Scheduler, RandomWorkloadsKeepPagesAsLongAsPatternsReadThem) {
  std::mt19937 random(5);
  uint64_t preemptions = 0;
  uint64_t shared = 0;
  uint64_t copied = 0;
  uint64_t ahead = 0;
  uint64_t kept = 0;
  uint64_t dropped = 0;
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::vector<std::optional<Pattern>> patterns = {Pattern::sink(3) | Pattern::window(20)};
    if (seed % 4 == 1) patterns = {test::random_pattern(random, 5)};
    if (seed % 4 == 2) patterns = {std::nullopt, Pattern::strided(9, 24) & Pattern::window(100)};
    if (seed % 4 == 3) patterns = {Pattern::blocks(16, 2), Pattern::dilated(5, 7), std::nullopt};
    const bool differs = seed % 8 < 4;
    std::vector<int> windows(patterns.size(), 0);
    if (seed % 4 == 3) windows.back() = 17;
    // Of two groups every fifth time so few that a sequence outlasts the pool.
    const int pages = patterns.size() == 1 ? 16 : seed % 5 == 4 ? 20 : 60;
    Simulation simulation({seed,
                           pages,
                           8,
                           {6, seed % 5 == 0 ? 6 : 40, 6 + static_cast<int>(seed % 4), differs},
                           seed % 3 != 0,
                           windows,
                           patterns,
                           differs && seed % 16 < 4});
    simulation.run(40);
    ASSERT_FALSE(HasFailure()) << "seed " << seed;
    preemptions += simulation.preemptions();
    shared += simulation.shared_tokens();
    copied += simulation.copied_pages();
    ahead += simulation.passes_ahead();
    kept += simulation.kept_pages();
    dropped += simulation.dropped_pages();
  }
  EXPECT_GT(preemptions, 20U);
  EXPECT_GT(shared, 300U);
  EXPECT_GT(copied, 20U);
  EXPECT_GT(ahead, 500U);
  EXPECT_GT(kept, 1000U);
  EXPECT_GT(dropped, 1000U);
}

/// Those who decode in step leave pages of theirs in every slab. Whoever stays has room all the same, to the last page.
TEST(Scheduler, WhoeverOutlivesACrowdCanFillThePool) {
  const PageLayout layout = page_layout({.head_dim = 8, .group = 1, .page = 8}, {});
  const PoolMap map(1, {{{0}, layout}, {{1}, layout}}, 6 * layout.bytes, 12);
  ASSERT_EQ(map.slab_pages(0), 5);
  for (const bool share : {false, true}) {
    PageCache cache(map, {.page = 8, .share = share, .windows = {0, 32}});
    Scheduler scheduler(cache, {.max_batch = 6, .max_pass_tokens = 64, .max_logit_rows = 8});
    int most = 400;
    while (scheduler.could_hold(most + 8)) most += 8;
    std::vector<Sequence> crowd(5);
    for (size_t i = 0; i < crowd.size(); ++i) {
      crowd[i].id = i;
      crowd[i].tokens.assign(3, static_cast<int32_t>(i));
      crowd[i].prompt = 3;
      crowd[i].most_tokens = i == 0 ? most : 40;
      scheduler.add(crowd[i]);
    }
    int passes = 0;
    for (; crowd[0].computed < most && passes < 3 * most; ++passes) {
      scheduler.admit();
      const ScheduledPass& pass = scheduler.plan();
      std::vector<Sequence*> advanced;
      for (const ScheduledPass::Entry& entry : pass.entries) {
        if (entry.logit_rows > 0) advanced.push_back(entry.sequence);
      }
      scheduler.complete();
      for (Sequence* sequence : advanced) {
        if (sequence->computed >= sequence->most_tokens) {
          if (sequence != &crowd[0]) scheduler.remove(*sequence);
        } else if (static_cast<int>(sequence->tokens.size()) == sequence->computed) {
          sequence->tokens.push_back(passes);
        }
      }
    }
    EXPECT_EQ(crowd[0].computed, most) << "sharing: " << share;
    EXPECT_LE(crowd[0].preemptions, 3);
    scheduler.remove(crowd[0]);
  }
}

}  // namespace
}  // namespace sluice
