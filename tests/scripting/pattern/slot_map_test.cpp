#include "scripting/pattern/slot_map.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "scripting/pattern/text.h"
#include "tests/scripting/pattern/boolean_matrix.h"

namespace sluice::test {
namespace {

TEST(SlotMap, NoSlotIsTakenAgainWhileSomebodyReadsIt) {
  std::mt19937 random(11);
  for (int i = 0; i < 100; ++i) {
    const Pattern pattern = random_pattern(random, 6);
    const auto length = static_cast<int>(1 + random() % 300);
    const SlotMap slots(PatternAnalysis(pattern), length);
    const BooleanMatrix seen = BooleanMatrix::of(pattern, length);
    std::vector<int> held(static_cast<size_t>(length), -1);
    int used = 0;
    for (int query = 0; query < length; ++query) {
      ASSERT_LT(slots.slot(query), length);
      ASSERT_LE(slots.free_from(query), query);
      const int before = held[static_cast<size_t>(slots.slot(query))];
      for (int early = slots.free_from(query); before >= 0 && early <= query; ++early) ASSERT_FALSE(seen.at(early, before));
      held[static_cast<size_t>(slots.slot(query))] = query;
      used = std::max(used, slots.slot(query) + 1);
      ASSERT_EQ(slots.used(query + 1), used);
      for (int key = 0; key <= query; ++key) {
        if (seen.at(query, key))
          ASSERT_EQ(held[static_cast<size_t>(slots.slot(key))], key) << to_text(pattern) << ", query " << query;
      }
    }
  }
}

TEST(SlotMap, TakesAsFewAsThePaperSays) {
  constexpr int kTokens = 16384;
  for (const auto& [pattern, wanted] : {std::pair{Pattern::sink(32) | Pattern::window(1024), 1056},
                                        {Pattern::window(384), 384},
                                        {Pattern::strided(512, 512), kTokens - 511},
                                        {Pattern::fixed(256), 319}}) {
    EXPECT_EQ(SlotMap(PatternAnalysis(pattern), kTokens).used(kTokens), wanted) << to_text(pattern);
  }
}

}  // namespace
}  // namespace sluice::test
